"""The catalogue: each rule knows its own example and no other's."""

import re

import pytest

from slurmddp.diagnose.catalogue import RULES, TOPICS, find_rule
from slurmddp.diagnose.rule_types import Rule

NUMBERED = [pytest.param(rule, id=f"{rule.key}-{number}") for number, rule in enumerate(RULES)]


@pytest.mark.parametrize("rule", NUMBERED)
def test_a_rule_knows_its_example_and_fills_its_sentence_from_it(rule):
    found = rule.match(rule.example)
    assert found is not None
    assert rule.what.format(**found).strip(": ") and "{" not in rule.advice.format(**found)
    assert find_rule(rule.example, rule.place) == (rule, found)


@pytest.mark.parametrize("rule", NUMBERED)
def test_a_rule_does_not_know_the_example_of_another(rule):
    """But a general one, which is tried last; and every exception is an exception."""
    others = [other for other in RULES if other is not rule and not rule.general]
    assert [other.example for other in others if rule.match(other.example) is not None] == []


@pytest.mark.parametrize("line", ["epoch 3: loss 0.2, error rate 0.11", "INFO no error", "Traceback", "", "Killed it"])
def test_an_ordinary_line_is_none(line):
    assert find_rule(line) is None


def test_options_of_a_program_that_exclude_one_another_are_no_variables_of_a_job():
    assert find_rule("train.py: error: --bf16 and --fp16 are mutually exclusive") is None


def test_an_exception_counts_only_where_one_ends_a_traceback():
    assert find_rule("FileNotFoundError: [Errno 2] No such file or directory: 'x'") is None
    rule, found = find_rule("FileNotFoundError: [Errno 2] No such file or directory: 'x'", "exception")
    assert (rule.key, found) == ("file-missing", {"path": "'x'"})


def test_a_list_of_paths_is_passed_over():
    """In a time that grows with its length, and not with its cube."""
    assert [rule for rule in RULES if rule.key == "import-error" and rule.match("/python" * 5000)] == []


def test_rules_of_one_key_agree_on_what_follows():
    """So that a key means one thing to a script: whether it is a cause, and whether trying again can help."""
    for key in {rule.key for rule in RULES}:
        alike = [rule for rule in RULES if rule.key == key]
        assert len({rule.again for rule in alike}) == 1, key
        assert len({rule.role == "consequence" for rule in alike}) == 1, key


def test_every_topic_has_rules_and_keys_are_words():
    assert all(TOPICS.values())
    assert all(isinstance(rule, Rule) and re.fullmatch(r"[a-z]+(-[a-z]+)*", rule.key) for rule in RULES)

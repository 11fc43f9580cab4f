"""The rules: each example is told by its own rule."""

import re
from pathlib import Path

import pytest
from ranks import make_rank

from slurmddp.diagnose.evidence import observe_last_words
from slurmddp.diagnose.log_reader import LogLine
from slurmddp.diagnose.rule_types import RESUME, Rule
from slurmddp.diagnose.rules import check_rule, find_rule, find_state_rule, load_rules
from slurmddp.runtime.stopping.policy import Known, Phase, StopReason, decide
from slurmddp.slurm.states import STATES, outcome_of

RULES = load_rules().own
HEALTHY = (Path(__file__).parent / "fixtures" / "healthy.txt").read_text().splitlines()


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.regex], ids=lambda rule: rule.key)
def test_a_rule_knows_its_example_and_fills_its_sentence_from_it(rule):
    check_rule(rule)
    found = rule.match(rule.example)
    assert rule.what.format(**found).strip(": ")
    assert find_rule(rule.example, rule.place) == (rule, found)


@pytest.mark.parametrize("rule", [rule for rule in RULES if not rule.regex], ids=lambda rule: rule.state or rule.end)
def test_a_state_and_an_end_fill_their_sentence(rule):
    assert "{" not in rule.what.format(nodes="n1", by="", status=1, output="x")


def test_the_causes_are_in_good_order():
    """So that a key means one thing to a script: whether it is a cause, and whether trying again can help.

    Any exception has the key `exception`, and only for Python's own kinds is it known that the same comes again.
    """
    assert all(load_rules().topics)
    assert all(rule.advice and "{" not in rule.advice for rule in RULES if rule.role != "consequence")
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", rule.key) for rule in RULES)
    for key in {rule.key for rule in RULES}:
        alike = [rule for rule in RULES if rule.key == key and rule.state != "REVOKED"]
        assert len({rule.again for rule in alike}) == 1 or key == "exception", key
        assert len({rule.role == "consequence" for rule in alike}) == 1, key


def test_every_state_in_which_a_job_has_failed_is_told_of_or_left_to_its_files():
    told = {rule.state.partition(" ")[0] for rule in RULES if rule.state}
    failed = {state for state in STATES if outcome_of(state).meaning.phase in ("failed", "cancelled")}
    assert failed - told == set()
    assert find_state_rule("FAILED", "1:0") is None
    resumable = [rule for rule in RULES if rule.state in ("TIMEOUT", "PREEMPTED", "CANCELLED")]
    assert all(rule.advice.startswith(RESUME) for rule in resumable)


@pytest.mark.parametrize("line", HEALTHY)
def test_a_line_of_a_run_that_went_well_accuses_nothing(line):
    path = Path("x")
    assert find_rule(line) is None
    assert list(observe_last_words([LogLine(path, 0, "step 1"), LogLine(path, 7, line)])) == []


@pytest.mark.parametrize(
    "line",
    [
        *("epoch 3: loss 0.2, error rate 0.11", "INFO no error", "Traceback", "", "Killed it"),
        "train.py: error: --bf16 and --fp16 are mutually exclusive",
        "FileNotFoundError: [Errno 2] No such file or directory: 'x'",
        "/python" * 5000,  # in a time that grows with its length, and not with its cube
    ],
)
def test_an_ordinary_line_is_none(line):
    assert find_rule(line) is None


def test_an_exception_counts_only_where_one_ends_a_traceback():
    rule, found = find_rule("FileNotFoundError: [Errno 2] No such file or directory: 'x'", "exception")
    assert (rule.key, found) == ("file-missing", {"path": "'x'"})


def test_what_a_program_says_while_it_cleans_up_is_no_cause():
    for line in ("OSError: [Errno 16] Device or resource busy: '.nfs00000000001c07850000000b'", "ConnectionResetError"):
        found = find_rule(line, "exception")
        assert found is not None and (found[0].role == "consequence" or found[0].general)


@pytest.mark.parametrize(
    ("number", "key"), [(13, "illegal-address"), (48, "gpu-broken"), (94, "gpu-broken"), (79, "gpu-broken"), (92, None)]
)
def test_an_xid_is_told_by_its_number(number, key):
    found = find_rule(f"NVRM: Xid (PCI:0000:3b:00): {number}, pid=4711, name=python")
    assert (found[0].key if found else None) == key


@pytest.mark.parametrize(
    "regex", ["(?!not )this", "(?<=after )this", r"(?P<a>x)\1", "(unclosed", "a{1,5000}"], ids=lambda regex: regex
)
def test_a_regex_that_might_not_be_linear_is_none(regex):
    with pytest.raises(ValueError, match="RE2 does not take the regex"):
        check_rule(Rule(key="x", what="x", regex=regex, example="x"))


@pytest.mark.parametrize(
    "line", ["Error: ranks " + "1, " * 10**6, "Error: " * 10**6, "keys: " + "/" * 10**6, "\udc80" * 10]
)
def test_no_line_keeps_the_rules_busy(line):
    """A line of 4 KB once took more than a hundred seconds."""
    for place in ("line", "exception", "end"):
        find_rule(line, place)


_RANK = make_rank(world_size=4, attached=True)
_STOPPED = {"rank": _RANK, "cause": "SIGTERM", "saved": "slurmddp saved nothing", "now": 0.0}
_BY = {reason: StopReason(reason) for reason in ("signal", "time limit", "preempted", "requeued", "cancelled")}


@pytest.mark.parametrize(
    "known",
    [
        {"phase": Phase.RENDEZVOUS},
        {"phase": Phase.SCRIPT, "is_hung": True},
        {"phase": Phase.SCRIPT, "silent": [1, 3]},
        *({"phase": Phase.SCRIPT, "silent": [], "slurm": slurm} for slurm in _BY.values()),
        *({"phase": Phase.LOOP, "silent": [], "slurm": slurm, "waits": 1} for slurm in _BY.values()),
    ],
)
def test_what_a_rank_says_that_was_told_to_stop_is_no_cause(known):
    """Else the rank that leaves first is accused, and the hang, the killed rank or Slurm is not."""
    action = decide(Known(**_STOPPED, **known))
    found = find_rule(f"Error: {action.verdict.reason}", "exception")
    assert found and (found[0].key, found[0].role) == ("told-to-stop", "consequence"), action.verdict.reason

"""Rules that a user or a site adds in its configuration folder; and those that do not count."""

import os
import re
from pathlib import Path

import pytest

from slurmddp import cli
from slurmddp.diagnose import rules
from slurmddp.diagnose.rules import find_rule, load_rules

PAGE = (Path(__file__).parents[2] / "docs" / "diagnose.md").read_text()
EXAMPLE = re.search(r"```toml\n(# ~/.config/slurmddp/rules/.*?)```", PAGE, re.DOTALL)[1]
SHOWN = re.search(r"```console\n\$ slurmddp diagnose train.log\n(.*?)```", PAGE, re.DOTALL)[1]
CAUSE = "[x]\nwhat = 'x'\n"
RULE = "regex = 'boom'\nexample = 'boom'\n"


@pytest.fixture
def put(tmp_path, monkeypatch):
    """Return a function that writes a file of rules; the rules are read anew before and after a test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_CONFIG_DIRS", f"{tmp_path / 'site'}:relative")

    def write(text, folder="own", name="a.toml"):
        path = tmp_path / folder / "slurmddp" / "rules" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    yield forget() or write
    forget()


def forget():
    for function in (load_rules, find_rule, rules._patterns_for):
        function.cache_clear()


def test_the_example_of_the_page_prints_what_the_page_says(put, tmp_path, capsys):
    put(EXAMPLE)
    (tmp_path / "train.log").write_text(load_rules().site[0].example + "\n")
    assert cli.run_command_line(["diagnose", "train.log"]) == 0
    assert capsys.readouterr() == (SHOWN, "")


def test_rules_of_the_user_come_before_those_of_the_site_and_those_before_ours(put):
    ours = find_rule("MemoryError", "exception")[0]
    memory = "regex = '^(?P<kind>Memory)Error'\nexample = 'MemoryError'\nplace = 'exception'\n"
    forget()
    put("[site]\nwhat = '{kind}'\n" + memory, "site")
    assert (ours.key, find_rule("MemoryError", "exception")[0].key) == ("host-memory", "site")
    forget()
    put("[mine]\nwhat = '{kind}'\n" + memory, name="z.toml")
    assert find_rule("MemoryError", "exception")[0].key == "mine"
    assert find_rule("step 7: zzz") is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[x\n", r"Expected ']' at the end of a table declaration \(at line 1, column 3\)"),
        (b"\xff", "line 1: not UTF-8 text"),
        ("x = 1\n", "cause x: Expected `object`, got `int`"),
        ("[x]\npatterns = 1\n", "cause x: Expected `array`, got `int`"),
        ("[x]\n" + RULE, "cause x, pattern 1: .*missing required field `what`"),
        (CAUSE, "cause x, pattern 1: it needs a regex, or else a state or an end"),
        (CAUSE + "state = 'FAILED'\n", "cause x, pattern 1: it needs a regex"),
        (CAUSE + "regex = 'boom'\n", "cause x, pattern 1: its regex needs an example: .*"),
        (CAUSE + RULE + "role = 'reason'\n", "cause x, pattern 1: Invalid enum value 'reason' .*"),
        (CAUSE + RULE + "advise = 'a'\n", "cause x, pattern 1: .*unknown field `advise`"),
        (
            CAUSE + "[[x.patterns]]\n" + RULE + "[[x.patterns]]\nregex = '('\nexample = '('\n",
            "cause x, pattern 2: RE2 does not take the regex .*",
        ),
        (
            CAUSE + "regex = 'boom'\nexample = 'bang'\n",
            "cause x, pattern 1: the regex is not found in its example: bang",
        ),
        ("[x]\nwhat = 'no {name}'\n" + RULE, "cause x, pattern 1: what names {name}, which no group of the regex has"),
        ("[x]\nwhat = 'no {'\n" + RULE, "cause x, pattern 1: Single '{' encountered in format string"),
    ],
)
def test_a_broken_file_is_one_line_that_names_the_place(put, tmp_path, capsys, text, why):
    path = put(text)
    put(EXAMPLE, "site")
    (tmp_path / "x.log").write_text("MemoryError\n")
    assert cli.run_command_line(["diagnose", "x.log"]) == 0
    out, err = capsys.readouterr()
    assert "[host-memory" in out
    assert re.fullmatch(rf"rules file {path} is ignored: {why}\n", err), err
    assert [rule.key for rule in load_rules().site] == ["scratch-down"] * 2


def test_a_file_that_another_user_can_have_written_is_ignored(put):
    shared, missing, other = put(EXAMPLE, name="a.toml"), put("", name="b.toml"), put(EXAMPLE, name="c.toml")
    shared.chmod(0o666)
    missing.unlink()
    missing.mkdir()
    if os.geteuid() == 0:
        os.chown(other, 12345, -1)
    else:
        other.unlink()
    expected = [f"rules file {shared} is ignored: every user may write to it; type `chmod o-w` on it to use it"]
    expected += [f"rules file {missing} is ignored: it cannot be read: Is a directory"]
    found = load_rules()
    assert found.site == () and list(found.ignored[:2]) == expected
    assert [("belongs to user 12345" in line) for line in found.ignored[2:]] == [True] * (os.geteuid() == 0)

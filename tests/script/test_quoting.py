"""Every value reaches bash and sbatch as it was given, or is refused; nothing is executed."""

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmddp.errors import UsageError
from slurmddp.script.quoting import header, lines, shell

HOSTILE = [
    "two words", "$(touch injected)", "`touch injected`", "a'b\"c", "back\\slash\\", "*", "~", "line\nbreak",
    "carriage\r\nreturn", "", "-n", "$HOME", "!!", "é ü 漢", "\udcff\udc80", "\x01\x7f", "\u202e", "#x", ";&|<>(){}[]",
]  # fmt: skip
words = st.lists(
    st.binary(max_size=20).map(lambda raw: raw.replace(b"\0", b"").decode("utf-8", "surrogateescape"))
    | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20),
    max_size=5,
)


def _by_bash(quoted: str) -> list[bytes]:
    script = f"printf '%s\\0' x {quoted}".encode()
    out = subprocess.run(["bash", "-s"], input=script, capture_output=True, check=True, env={"LC_ALL": "C.UTF-8"})
    assert out.stderr == b""
    return out.stdout.split(b"\0")[1:-1]


@pytest.mark.parametrize("word", HOSTILE)
def test_a_hostile_word_reaches_bash_byte_for_byte(word, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert _by_bash(shell(word)) == [word.encode("utf-8", "surrogateescape")]
    assert list(tmp_path.iterdir()) == []


@given(words)
def test_any_words_reach_bash_byte_for_byte(given_words):
    assert _by_bash(shell(tuple(given_words))) == [word.encode("utf-8", "surrogateescape") for word in given_words]


@given(words)
def test_a_quoted_word_is_readable_text_on_one_line(given_words):
    quoted = shell(tuple(given_words))
    quoted.encode("utf-8")
    assert quoted.isprintable()


@pytest.mark.parametrize("value", ["a\nb", "a\rb", "\x1b[31m", "", "\udcff", "\u2028", "\u202e"])
def test_a_header_value_that_could_end_its_line_or_hide_is_refused(value):
    with pytest.raises(UsageError, match="cannot be written in a #SBATCH line"):
        header(value)


def test_a_plain_header_value_stays_as_it_is():
    assert header("n[1-4],n7") == "n[1-4],n7"
    assert header(8) == "8"


def test_a_header_value_is_quoted_as_sbatch_reads_it():
    assert header('a "b" \\ #c') == '"a \\"b\\" \\\\ #c"'


def test_a_nul_is_refused_because_no_command_line_carries_it():
    with pytest.raises(UsageError, match="NUL"):
        shell("a\0b")


@pytest.mark.parametrize("value", ["a\r\nb", "a\0b"])
def test_shell_lines_that_sbatch_refuses_are_refused_here(value):
    with pytest.raises(UsageError, match="carriage return or a NUL"):
        lines(value)

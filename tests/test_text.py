"""Text for people: secrets are masked, control characters escaped."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmddp.config import resolve
from slurmddp.errors import UsageError
from slurmddp.submission import compatibility
from slurmddp.text import clean_line, is_secret, mask_secrets

SECRETS = "HF_TOKEN WANDB_API_KEY AWS_SECRET_ACCESS_KEY PGPASSWORD db-password GITHUBTOKEN MY_PWD DB_PASS SSHPASS"
HARMLESS = "TOKENIZERS_PARALLELISM --tokenizer MONKEY KEYBOARD PWD OMP_NUM_THREADS PATH author"


@pytest.mark.parametrize("name", [*SECRETS.split(), "GH_PAT", "MY_AUTH", "Authorization", *HARMLESS.split()])
def test_a_secret_is_known_by_its_name(name):
    assert is_secret(name) == (name not in HARMLESS.split())


def test_variables_keep_their_names_and_lose_secret_values():
    items = ("HF_TOKEN=a b'c\n=d", "HF_TOKEN", "A=1", "URL=https://me:geheim@host/x")
    assert mask_secrets(items) == ("HF_TOKEN=***", "HF_TOKEN", "A=1", "URL=https://me:***@host/x")


def test_lines_and_words_are_masked_too():
    assert mask_secrets(("export A_KEY='x y' B=2; C_TOKEN=z",)) == ("export A_KEY=***",)
    words = ("train.py", "--api-key", "x", "--lr", "1", "--db-password=y z", "--token", "--fast")
    assert " ".join(mask_secrets(words)) == "train.py --api-key *** --lr 1 --db-password=*** --token --fast"
    assert mask_secrets(3) == 3 and mask_secrets(None) is None


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("huggingface-cli login --token hf_X --quiet", "huggingface-cli login --token ***"),
        ('HF_TOKEN="a\\"X y"; B=2', "HF_TOKEN=***"),
        ("export HF_TOKEN=$(echo X)", "export HF_TOKEN=***"),
        ("curl -H 'Authorization: Bearer X' https://host", "curl -H 'Authorization: ***"),
        ("git clone https://TOKEN@host/x", "git clone https://***@host/x"),
        ("pip install -i https://me:p@ss@host/x y", "pip install -i https://me:***@host/x y"),
        ('{"token": "X"}', '{"token***'),
        ("HF_TOKEN=a\nX", "HF_TOKEN=***"),
    ],
)
def test_a_line_is_masked_after_the_name_of_a_secret(line, shown):
    assert mask_secrets(line) == shown
    assert mask_secrets(shown) == shown


@pytest.mark.parametrize(
    "line",
    ["source ~/key/env.sh", "cd $PWD && ls", "export HF_TOKEN", "A=1 python token.py --tokenizer x", "HF_TOKEN="],
)
def test_a_line_without_a_secret_is_unchanged(line):
    assert mask_secrets(line) == line


def test_secrets_in_tables_are_masked():
    assert mask_secrets({"HF_TOKEN": ["X"], "a": {"b": ["--token", "X", 1]}}) == {
        "HF_TOKEN": "***",
        "a": {"b": ["--token", "***", 1]},
    }


@pytest.mark.parametrize(
    "text",
    [
        'env = "HF_TOKEN=s3cret"',
        'env = {HF_TOKEN = ["s3cret"]}',
        'env = ["HF TOKEN=s3cret"]',
        'env = ["MY CREDIT=s3cret"]',
        'command = "train.py --token s3cret"',
        'command = ["train.py", "--token", "s3cret", 1]',
        "setup = 'login --token s3cret'",
        "setup = ['login --token s3cret \\']",
        'profile.a = "HF_TOKEN=s3cret"',
    ],
)
def test_no_message_contains_a_secret(text, tmp_path):
    (tmp_path / "job.toml").write_text(text)
    with pytest.raises(UsageError) as caught:
        resolve.resolve(options={}, words=(), job_file=tmp_path / "job.toml", environ={})
    assert "s3cret" not in str(caught.value)


def test_a_changed_command_is_reported_without_its_secrets():
    before = ["train.py", "--token", "geheim", [255, 1], "--seed", "1", "--lr", "0.1"]
    assert compatibility.difference(before[:4], None) == "'train.py --token *** [255, 1]' was left out"
    assert compatibility.difference(before, [*before[:5], "2", *before[6:]]) == "'--seed 1' became '--seed 2'"
    assert compatibility.difference(before[:4], before) == "'--seed 1 --lr 0.1' was added"


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (b"a\tb\n", "a\tb"),
        (b"\x1b[1;31mred\x1b[0m\r\n", "red"),
        (b"\x1b]0;title\x07", "\ufffd]0;title\ufffd"),
        (b"x\x08\x00y", "x\ufffd\ufffdy"),
        ("\u202e\u00e4".encode(), "\ufffd\u00e4"),
        (b" 10%\r 20%\r 30%\n", " 30%"),
        (b"\xff", "\ufffd"),
        (b"\n", ""),
    ],
)
def test_a_line_of_output_stays_readable(written, shown):
    assert clean_line(written) == shown


@given(st.binary())
def test_every_character_is_printable(line):
    assert all(char.isprintable() or char == "\t" for char in clean_line(line))

"""What looks like a secret by its name is shown without its value."""

import pytest

from slurmddp import sameness
from slurmddp.masking import is_secret, masked, masked_variables, masked_words


@pytest.mark.parametrize(
    "name", ["HF_TOKEN", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY", "PGPASSWORD", "db-password", "GITHUBTOKEN", "MY_PWD"]
)
def test_a_secret_is_known_by_its_name(name):
    assert is_secret(name)


@pytest.mark.parametrize(
    "name", ["TOKENIZERS_PARALLELISM", "--tokenizer", "MONKEY", "KEYBOARD", "PWD", "OMP_NUM_THREADS"]
)
def test_a_harmless_name_is_no_secret(name):
    assert not is_secret(name)


def test_variables_keep_their_names_and_lose_secret_values():
    items = ("HF_TOKEN=a b'c\n=d", "HF_TOKEN", "A=1", "URL=https://me:geheim@host/x")
    assert masked_variables(items) == ("HF_TOKEN=***", "HF_TOKEN", "A=1", "URL=https://me:***@host/x")


def test_lines_and_words_are_masked_too():
    assert masked(("export A_KEY='x y' B=2; C_TOKEN=z",)) == ("export A_KEY=*** B=2; C_TOKEN=***",)
    words = ("train.py", "--api-key", "x", "--lr", "1", "--db-password=y z", "--token", "--fast")
    assert masked_words(words) == (
        "train.py",
        "--api-key",
        "***",
        "--lr",
        "1",
        "--db-password=***",
        "--token",
        "--fast",
    )
    assert masked(3) == 3 and masked(None) is None


def test_a_runs_other_command_is_told_without_its_secrets():
    said = sameness.difference(["train.py", "--token", "geheim", [255, 1]], None)
    assert said == "['train.py', '--token', '***', '[255, 1]'] became None"

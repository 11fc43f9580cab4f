"""--stage-env stands alone or has its folder behind `=`: the next word is COMMAND's."""

import pytest
from click.testing import CliRunner

from slurmddp.cli import group
from slurmddp.cli.job_command import split_command_line


@pytest.mark.parametrize("word", ["--stage-env", "--stage-env=/local"])
def test_the_word_behind_it_is_the_command(word):
    assert split_command_line([word, "train.py"], {"--stage-env": False}) == ([word], None, ("train.py",))


@pytest.mark.parametrize(
    ("words", "folder"), [(["--stage-env"], '"${TMPDIR:-/tmp}"'), (["--stage-env=/a b"], "'/a b'")]
)
def test_it_names_the_folder_on_the_nodes(words, folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    done = CliRunner().invoke(group, ["render", "--nodes=2", *words, "-c2", "train.py"])
    assert f'{folder}/slurmddp-"$UID") ||' in done.stdout, done.output


def test_run_has_no_such_option(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(group, ["run", "--stage-env", "train.py"])
    assert "'--stage-env' is an option of `slurmddp submit`, but not of this command" in str(done.exception)

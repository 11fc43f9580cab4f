"""Configuration is found upwards, as far as it can be anybody's business, and counts when nobody else wrote it."""

import os
from pathlib import Path

import pytest
from ownership import foreign

from slurmddp.config import configuration_files, job_files, resolve
from slurmddp.config.job_files import find_configuration
from slurmddp.config.toml import parse_toml
from slurmddp.errors import UsageError


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home with a repository in it, and nothing of this machine's user."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "repository" / ".git").mkdir(parents=True)
    (tmp_path / "repository" / "deep" / "deeper").mkdir(parents=True)
    return tmp_path


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o644)
    return path


def paths(found):
    return [file.path for file in found.files]


def test_the_nearest_project_file_up_to_the_repositorys_root_counts(home):
    repository = home / "repository"
    write(home / "slurmddp.toml", "nodes = 9")
    assert paths(find_configuration(repository / "deep")) == []
    root = write(repository / "slurmddp.toml", "nodes = 2")
    assert paths(find_configuration(repository / "deep" / "deeper")) == paths(find_configuration(repository)) == [root]
    near = write(repository / "deep" / "pyproject.toml", "[tool.slurmddp]\nnodes = 3")
    (file,) = find_configuration(repository / "deep" / "deeper").files
    assert (file.path, file.table) == (near, {"nodes": 3})


@pytest.mark.parametrize(
    "text",
    [
        "[ tool . slurmddp ]\nnodes = 3",
        "['tool'.\"slurmddp\"]\nnodes = 3",
        "[tool]\nslurmddp = {nodes = 3}",
        "[tool]\nslurmddp.nodes = 3",
        "tool.slurmddp.nodes = 3",
        "tool = {slurmddp = {nodes = 3}}",
    ],
)
def test_our_table_counts_however_it_is_written(home, text):
    write(home / "repository" / "pyproject.toml", text)
    (file,) = find_configuration(home / "repository").files
    assert file.table == {"nodes": 3}


def test_the_users_file_is_where_the_environment_says_by_a_whole_path(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("XDG_CONFIG_HOME", "config")
    assert configuration_files.user_file() == Path("/home/me", ".config", "slurmddp", "config.toml")


def test_outside_of_a_repository_home_is_the_last_place(home):
    (home / "home" / "work").mkdir(parents=True)
    write(home / "slurmddp.toml", "nodes = 9")
    os.environ["HOME"] = str(home / "home")
    assert paths(find_configuration(home / "home" / "work")) == []
    own = write(home / "home" / "slurmddp.toml", "nodes = 2")
    assert paths(find_configuration(home / "home" / "work")) == [own]


def test_of_two_project_files_in_one_folder_ours_counts_and_the_other_is_named(home):
    own = write(home / "repository" / "slurmddp.toml", "nodes = 2")
    shared = write(home / "repository" / "pyproject.toml", "[tool.slurmddp]\nnodes = 3")
    found = find_configuration(home / "repository")
    assert (paths(found), found.ignored) == ([own], ((shared, "slurmddp.toml in the same folder is used"),))


@pytest.mark.parametrize(
    "text", ["[tool.ruff]\nline-length = 9", "[tool.ruff", 'dependencies = ["slurmddp"]', "tool = 1"]
)
def test_a_pyproject_without_our_table_is_none_of_ours(text, home):
    write(home / "repository" / "pyproject.toml", text)
    assert find_configuration(home / "repository") == job_files.Configuration()


def test_what_everybody_may_write_does_not_count(home):
    file = write(home / "repository" / "slurmddp.toml", "nodes = 2")
    file.chmod(0o646)
    found = find_configuration(home / "repository")
    assert found.files == ()
    assert found.ignored == ((file, "every user may write to it; type `chmod o-w` on it to use it"),)
    file.chmod(0o664)
    assert paths(find_configuration(home / "repository")) == [file]


@pytest.mark.parametrize("name", ["slurmddp.toml", "pyproject.toml"])
def test_what_somebody_else_owns_does_not_count(name, home, monkeypatch):
    text = "[tool.slurmddp]\nnodes = 2" if name == "pyproject.toml" else "syntax error"
    file = write(home / "repository" / name, text)
    foreign(file, monkeypatch)
    ((path, why),) = find_configuration(home / "repository").ignored
    assert path == file
    assert why.startswith("it belongs to user ") and why.endswith(", who is neither you nor root")


def test_somebody_elses_pyproject_without_our_table_is_not_spoken_of(home, monkeypatch):
    foreign(write(home / "repository" / "pyproject.toml", 'dependencies = ["slurmddp"]'), monkeypatch)
    assert find_configuration(home / "repository") == job_files.Configuration()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make a link that is somebody else's")
def test_somebody_elses_link_to_my_file_does_not_count(home, monkeypatch):
    target = write(home / "mine.toml", "nodes = 2")
    link = home / "repository" / "slurmddp.toml"
    link.symlink_to(target)
    assert paths(find_configuration(home / "repository")) == [link]
    foreign(link, monkeypatch)
    assert [path for path, _ in find_configuration(home / "repository").ignored] == [link]


def test_what_is_no_file_is_ignored_and_does_not_hold_anybody_up(home):
    os.mkfifo(home / "repository" / "slurmddp.toml")
    (home / "config" / "slurmddp" / "config.toml").mkdir(parents=True)
    whys = [why for _, why in find_configuration(home / "repository").ignored]
    assert whys == ["it is not a regular file", "it cannot be read: Is a directory"]


def test_only_a_regular_file_of_a_sensible_size_is_read(tmp_path):
    os.mkfifo(tmp_path / "pipe.toml")
    (tmp_path / "big.toml").touch()
    os.truncate(tmp_path / "big.toml", 11 * 10**8)
    for name, why in (("pipe", "is not a regular file"), ("big", "has 1100 MB, more than 16")):
        with pytest.raises(UsageError, match=f"^job file '.*{name}.toml' {why}; give a text file$"):
            job_files.read_job_file(tmp_path / f"{name}.toml")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("slurmddp.toml", "nodes = 2\nnodes = ", "slurmddp.toml: Invalid value .at end of document."),
        ("slurmddp.toml", "node = 2", "project file .*slurmddp.toml: unknown key 'node'; did you mean nodes"),
        ("slurmddp.toml", 'command = ["x.py"]', "command is not allowed here; write it at the top of a job file"),
        ("slurmddp.toml", "recorded = 1", "recorded is not allowed here"),
        ("slurmddp.toml", "[profile.a]\ncommand = []", "table profile.a: command is not allowed here"),
        ("slurmddp.toml", "[profile.a]\nprofile = 'b'", "table profile.a: profile is not allowed here"),
        ("slurmddp.toml", "[profile.a]\nnode = 2", "table profile.a: unknown key 'node'; did you mean nodes"),
        ("slurmddp.toml", "[profile.a.worker]\nepoch = 2", "table profile.a.worker: unknown key 'epoch'"),
        ("slurmddp.toml", "[profile.a.env]\nA = []", "table profile.a.env, key A: "),
        ("slurmddp.toml", "[profile]\na = 2", "table profile.a: 2 is not a table of job options"),
        ("slurmddp.toml", "profile = 'a'\n[profile.a]\nnodes = 2", "slurmddp.toml: .*line 2"),
        ("pyproject.toml", "[tool.slurmddp]\nnode = 2", "table tool.slurmddp: unknown key 'node'"),
        ("pyproject.toml", "[tool]\nslurmddp = 2", "table tool.slurmddp: 2 is not a table"),
        ("pyproject.toml", "[tool.slurmddp]\nnodes = ", "pyproject.toml: Invalid value .at end of document."),
        ("pyproject.toml", "[tool.slurmddp.worker]\nepoch = 2", "table tool.slurmddp.worker: unknown key 'epoch'"),
    ],
)
def test_a_mistake_is_one_line_with_the_file_and_the_place(name, text, message, home):
    write(home / "repository" / name, text)
    with pytest.raises(UsageError, match=message) as caught:
        find_configuration(home / "repository")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nodes = " + "9" * 5000, "slurmddp.toml: its tables are nested too deeply, or a number in it is too big"),
        ("nodes = 0x" + "f" * 5000, "slurmddp.toml: its tables are nested too deeply, or"),
        ("[profile.a.env]\nA = -9223372036854775809", "slurmddp.toml: its tables are nested too deeply, or"),
        ("nodes = " + "[" * 20000, "slurmddp.toml: its tables are nested too deeply, or"),
        ("nodes = " + "[" * 150 + "]" * 150, "slurmddp.toml: its tables are nested too deeply, or"),
        ("nodes" + ".a" * 700 + " = 1", "slurmddp.toml: its tables are nested too deeply, or"),
        (
            "time = 04:00:00",
            'key time: a date or a time is not a Slurm time .*; write it with quotes, as in "04:00:00"',
        ),
    ],
)
def test_what_toml_allows_and_we_cannot_take_is_one_line_too(text, message, home):
    write(home / "repository" / "slurmddp.toml", text)
    with pytest.raises(UsageError, match=message) as caught:
        resolve.resolve(
            options={},
            words=(),
            job_file=None,
            environ={},
            configuration=find_configuration(home / "repository").files,
        )
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 400


def test_a_value_that_is_missing_is_told_with_its_place():
    with pytest.raises(
        UsageError, match=r"^job file a.toml: Invalid value \(at line 1, column 9\); a text stands in quotes"
    ):
        parse_toml(b"nodes = \n", "job file a.toml")

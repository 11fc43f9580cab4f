"""The copy of the code: what is in it, what it is called, and that it is whole or not there."""

import os
import subprocess
from pathlib import Path

import pytest

from slurmddp.config.job_spec import JobSpec
from slurmddp.errors import UsageError
from slurmddp.runs.layout import RunDir
from slurmddp.script import snapshot
from slurmddp.script.build import build_script

GIT = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "protocol.file.allow=always"]


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def git(folder: Path, *words: str) -> None:
    subprocess.run([*GIT, "-C", folder, *words], check=True, capture_output=True)


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with a program, as yet without git, which is the working directory."""
    folder = tmp_path / "project"
    write(folder, {"train.py": "one", "pkg/__init__.py": "", "pkg/model.py": "two"})
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def repository(project):
    """The same in git, with files that are ignored, untracked, changed and gone."""
    write(project, {".gitignore": "*.log\ndata/\n", "gone.py": "x"})
    git(project, "init", "-q")
    git(project, "add", ".")
    git(project, "commit", "-qm", "x")
    write(project, {"pkg/model.py": "changed", "new.py": "untracked", "a.log": "", "data/x.bin": ""})
    (project / "gone.py").unlink()
    return project


@pytest.fixture
def run(tmp_path):
    """A run's folder."""
    run = RunDir(tmp_path / "run")
    run.path.mkdir()
    return run


@pytest.fixture
def library(tmp_path):
    """A repository beside the project."""
    write(tmp_path / "lib", {"lib.py": "", "noise.log": "", ".gitignore": "*.log"})
    git(tmp_path / "lib", "init", "-q")
    git(tmp_path / "lib", "add", ".")
    git(tmp_path / "lib", "commit", "-qm", "x")
    return str(tmp_path / "lib")


def code(*command: str, **values) -> snapshot.Code:
    return snapshot.read_code(JobSpec(job_name="x", snapshot=True, command=command, **values))


def paths(*command: str, **values) -> list[str]:
    return [entry.path for entry in code(*command, **values).entries]


@pytest.mark.usefixtures("project")
def test_of_two_copies_made_at_once_the_first_one_stays(run, monkeypatch):
    found = code("train.py")
    copy_file, made = snapshot._copy, []

    def copy_while_another_does(top, entry, place):
        monkeypatch.setattr(snapshot, "_copy", copy_file)
        made.append(snapshot.copy_code(found, run))
        copy_file(top, entry, place)

    monkeypatch.setattr(snapshot, "_copy", copy_while_another_does)
    assert snapshot.copy_code(found, run) is None, "it is the other's, who may have a job that needs it"
    assert made == [run.code(found.digest)]
    assert list(run.codes.iterdir()) == made and (made[0] / "train.py").read_text() == "one"


def test_a_work_tree_is_what_git_does_not_ignore_as_it_is_now(repository):
    wanted = [".gitignore", "new.py", "pkg/__init__.py", "pkg/model.py", "train.py"]
    assert paths("train.py") == wanted
    os.chdir(repository / "pkg")
    assert paths("../train.py") == paths("-m", "model") == wanted


def test_a_folder_without_git_is_whole_but_for_caches_environments_and_runs(project):
    write(project, {"sub/b.py": "", "sub/__pycache__/b.pyc": "", "env/pyvenv.cfg": "", "env/lib/x.py": ""})
    write(
        project,
        {"jobs/x/.gitignore": "*\n", "jobs/x/model.pt": "", "jobs/exp.toml": "", "jobs/y/..gitignore.a8_bcdef": ""},
    )
    assert paths("train.py") == ["jobs/exp.toml", "pkg/__init__.py", "pkg/model.py", "sub/b.py", "train.py"]


def test_submodules_and_repositories_within_are_part_of_it_and_one_that_was_not_fetched_is_not(
    repository, library, tmp_path
):
    git(repository, "submodule", "add", "-q", library, "module")
    git(tmp_path, "clone", "-q", library, str(repository / "other"))
    write(repository, {"other/own.py": ""})
    assert {"module/lib.py", "other/lib.py", "other/own.py"} <= set(paths())
    git(repository, "commit", "-qm", "module")
    git(tmp_path, "clone", "-q", str(repository), "clone")
    os.chdir(tmp_path / "clone")
    assert Path("module").is_dir()
    assert [path for path in paths("train.py") if "module" in path] == [".gitmodules"]
    os.chdir("module")
    assert code().top == tmp_path / "clone"


def test_a_tracked_folder_that_is_now_a_link_is_the_link_alone(repository, run, tmp_path):
    (repository / "pkg").rename(tmp_path / "elsewhere")
    (repository / "pkg").symlink_to("../elsewhere")
    assert [path for path in paths("train.py") if path.startswith("pkg")] == ["pkg"]
    assert (snapshot.copy_code(code("train.py"), run) / "pkg").readlink() == tmp_path / "elsewhere"


def test_a_repository_that_git_will_not_read_is_refused_in_its_words(repository, monkeypatch):
    """Copied without git it would bring what is ignored, as secrets are."""
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.setenv(name, os.devnull)
    for folder in (repository, repository / "pkg"):
        monkeypatch.chdir(folder)
        with pytest.raises(
            UsageError, match=r"git cannot read .*/project: fatal: .*ownership.*safe.directory"
        ) as refused:
            code()
        assert "\n" not in str(refused.value)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UsageError, match="No such file or directory: 'git'"):
        code()


def test_a_repository_on_another_file_system_is_not_this_folders(project, monkeypatch):
    """Git does not look there either."""
    (project / ".git").mkdir()
    with pytest.raises(UsageError, match="not a git repository"):
        code()
    within, device = project / "pkg", project.stat().st_dev
    stat = Path.stat
    other = os.stat_result([*within.stat()[:2], device + 1, *within.stat()[3:]])
    monkeypatch.setattr(Path, "stat", lambda path, **how: other if path == within else stat(path, **how))
    monkeypatch.chdir(within)
    assert paths() == ["__init__.py", "model.py"]


def test_a_script_elsewhere_brings_its_own_folder(project, monkeypatch):
    monkeypatch.chdir(project.parent)
    (project.parent / "away").mkdir()
    monkeypatch.chdir(project.parent / "away")
    assert code("../project/train.py").top == project
    assert code("-m", "x").top == project.parent / "away"


def test_an_executable_elsewhere_is_no_code(project):
    assert code("/bin/sh", "x", no_python=True).top == code("sh", no_python=True).top == project
    with pytest.raises(UsageError, match="'./gone' is not part of the code"):
        code("./gone", no_python=True)


def test_the_name_is_of_the_content_alone(repository, tmp_path):
    first = code("train.py")
    subprocess.run(["cp", "-r", repository, tmp_path / "other"], check=True)
    os.chdir(tmp_path / "other")
    assert code("train.py").digest == first.digest
    for change in (lambda: write(Path(), {"train.py": "x"}), lambda: Path("train.py").chmod(0o755)):
        before = code("train.py").digest
        change()
        assert code("train.py").digest != before


def test_the_copy_is_read_only_and_can_be_removed(repository, run):
    (repository / "run.sh").write_text("#!/bin/sh\n")
    (repository / "run.sh").chmod(0o755)
    found = code("train.py")
    copy = snapshot.copy_code(found, run)
    assert copy == run.code(found.digest)
    assert (copy / "pkg" / "model.py").read_text() == "changed"
    assert (copy / "train.py").stat().st_mode & 0o777 == 0o444
    assert (copy / "run.sh").stat().st_mode & 0o777 == 0o555
    assert snapshot.copy_code(found, run) is None, "it is there already"
    assert [path.name for path in run.codes.iterdir()] == [found.digest]
    snapshot.remove_copy(copy)
    assert not run.codes.exists()


def test_what_was_deleted_of_a_copy_is_put_back_and_the_rest_stays(project, run):
    (project / "link.py").symlink_to("train.py")
    found = code("train.py")
    copy = snapshot.copy_code(found, run)
    kept = (copy / "train.py").stat().st_ino
    (copy / "link.py").unlink()
    snapshot.shutil.rmtree(copy / "pkg")
    assert snapshot.copy_code(found, run) is None, "other jobs may need it, so it is not this one's to remove"
    assert ((copy / "pkg" / "model.py").read_text(), str((copy / "link.py").readlink())) == ("two", "train.py")
    assert (copy / "pkg" / "model.py").stat().st_mode & 0o777 == 0o444
    assert (copy / "train.py").stat().st_ino == kept
    assert [path.name for path in run.codes.iterdir()] == [found.digest]


def test_links_within_the_code_lead_into_the_copy_and_others_to_where_they_led(project, run, tmp_path):
    (project / "inside.py").symlink_to("train.py")
    (project / "absolute.py").symlink_to(project / "train.py")
    (project / "data").symlink_to("../big")
    (tmp_path / "big").mkdir()
    copy = snapshot.copy_code(code("train.py"), run)
    assert {name: str((copy / name).readlink()) for name in ("inside.py", "absolute.py", "data")} == {
        "inside.py": "train.py",
        "absolute.py": "train.py",
        "data": str(tmp_path / "big"),
    }


def test_a_file_that_changes_while_it_is_copied_leaves_nothing(project, run):
    found = code("train.py")
    (project / "train.py").write_text("later")
    with pytest.raises(UsageError, match=r"train.py changed while it was copied; submit again"):
        snapshot.copy_code(found, run)
    assert not run.codes.exists()


def test_a_script_that_is_missing_or_that_git_ignores_is_refused(repository):
    with pytest.raises(UsageError, match="COMMAND: there is no file 'gone.py' in "):
        build_script(JobSpec(job_name="x", snapshot=True, command=("gone.py",)))
    write(repository, {"scratch.log": ""})
    with pytest.raises(UsageError, match=r"'scratch.log' is not part of the code in .*add it to git"):
        code("scratch.log")


def test_what_is_too_large_is_refused_with_what_to_do(project, monkeypatch):
    monkeypatch.setattr(snapshot, "MOST_BYTES", 3 * 2**20)
    with (project / "weights.bin").open("wb") as file:
        file.truncate(5 * 2**20)
    message = (
        r"has 5 MB, at most 3 are allowed; the largest file is 'weights.bin' with 5; move the files that are not code"
    )
    with pytest.raises(UsageError, match=message):
        code("train.py")
    git(project, "init", "-q")
    with pytest.raises(UsageError, match=r"list the files that are not code in .gitignore"):
        code("train.py")
    monkeypatch.setattr(snapshot, "MOST_FILES", 2)
    with pytest.raises(UsageError, match="has more than 2 files"):
        code("train.py")


def test_what_cannot_be_read_is_named(project):
    (project / "odd").symlink_to("nowhere")
    assert "odd" in paths("train.py"), "a link that leads nowhere is one"
    (project / "loop.py").symlink_to("loop.py")
    assert "loop.py" in paths("train.py")


def test_names_of_any_bytes_are_carried(repository, run):
    name = os.fsdecode(b"\xff\n'.py")
    (repository / name).write_text("odd")
    assert (snapshot.copy_code(code("train.py"), run) / name).read_text() == "odd"


def test_the_script_says_where_the_code_comes_from(repository):
    spec = JobSpec(job_name="x", snapshot=True, command=("train.py",))
    text = build_script(spec).text.decode()
    digest = snapshot.read_code(spec).digest
    assert f"export SLURMDDP_CODE=$SLURMDDP_RUN_DIR/code/{digest} SLURMDDP_CODE_ORIGIN={repository}\n" in text
    assert "-m slurmddp.worker \\\n    train.py\n" in text

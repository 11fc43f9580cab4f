"""Who may change what is at a path, for two real users, alice and mallory; root makes the folders."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from users import ALICE, MALLORY, OTHERS, PROJECT, give, make, open_to_all, user

from slurmddp.errors import UsageError
from slurmddp.runs.layout import RunDir
from slurmddp.trust import explain_distrust, explain_foreign

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can become two users")


@pytest.fixture
def place(tmp_path):
    """A folder that every user can reach, below folders of root."""
    return open_to_all(tmp_path)


@pytest.mark.parametrize(
    ("uid", "mode", "gid", "said"),
    [
        (ALICE, 0o755, OTHERS, ""),
        (0, 0o755, OTHERS, ""),
        (0, 0o1777, OTHERS, ""),
        (MALLORY, 0o1777, OTHERS, ""),  # scratch of a service account
        (0, 0o2775, PROJECT, ""),
        (MALLORY, 0o2775, PROJECT, ""),  # a project's folder, made by a colleague
        (ALICE, 0o2775, PROJECT, ""),
        (0, 0o2775, OTHERS, ""),  # root shares it with its admins
        (MALLORY, 0o755, PROJECT, "belongs to user 12002, who does not share it with you"),
        (MALLORY, 0o775, OTHERS, "belongs to user 12002, who does not share it with you"),
        (MALLORY, 0o777, OTHERS, "every user may write to"),
        (0, 0o777, OTHERS, "every user may write to"),
        (ALICE, 0o777, OTHERS, "every user may write to"),
    ],
)
def test_a_folder_is_accepted_where_no_stranger_can_replace_what_is_in_it(place, uid, mode, gid, said):
    folder = make(place / "folder", uid, mode, gid)
    with user(ALICE, PROJECT):
        for path in (folder, folder / "run", folder / "not" / "yet"):
            found = explain_distrust(path)
            assert said in found and bool(said) == bool(found)


def test_a_list_names_those_who_may_write(place):
    folder = make(place / "folder", MALLORY, 0o755)
    give(folder, user_12001=7)
    with user(ALICE, PROJECT):
        assert explain_distrust(folder) == ""
    own = make(place / "own", ALICE, 0o700)
    give(own, user_12002=7)
    with user(ALICE, PROJECT):
        assert explain_distrust(own) == "", "alice herself has shared it"
        assert explain_foreign(own) == f"other users may write to '{own}'; type: chmod go-w '{own}'"
    with user(MALLORY, OTHERS):
        assert explain_distrust(own) == ""
    give(own, group_13002=5)
    with user(ALICE, PROJECT):
        assert explain_foreign(own) == "", "it can only be read"


@pytest.mark.parametrize(("owner", "is_followed"), [(ALICE, True), (0, True), (MALLORY, False)])
def test_a_link_is_followed_if_its_owner_may_choose(place, owner, is_followed):
    make(place / "home", ALICE, 0o755)
    make(place / "home" / "data", ALICE, 0o755)
    shared = make(place / "shared", 0, 0o1777)
    link = shared / "link"
    link.symlink_to("../home/data")
    os.chown(link, owner, OTHERS, follow_symlinks=False)
    with user(ALICE, PROJECT):
        said = explain_distrust(link / "run")
        assert said == ("" if is_followed else f"'{link}' is a link of user {owner}")


def test_a_hostile_name_is_quoted_in_what_to_type(place):
    folder = make(place / "x; touch pwned\nError: no", ALICE, 0o777)
    with user(ALICE, PROJECT):
        said = explain_distrust(folder)
    assert "\n" not in said and f"type: chmod o-w '{place}/x; touch pwned" in said


def test_a_circle_of_links_ends(place):
    (place / "a").symlink_to("b")
    (place / "b").symlink_to("a")
    with pytest.raises(OSError, match="Too many levels"):
        explain_distrust(place / "a" / "run")


def attempt(folder, name="run"):
    """Let alice make a run; return the reason why not."""
    with user(ALICE, PROJECT):
        try:
            RunDir(folder / name).create()
        except UsageError as error:
            return str(error)
    return ""


def test_another_user_s_link_to_a_folder_of_mine_is_not_followed(place):
    mine = make(place / "mine", ALICE, 0o700)
    with user(ALICE, PROJECT):
        (mine / "spec.toml").write_text("mine")
    jobs = make(place / "jobs", MALLORY, 0o1777)
    (jobs / "run").symlink_to(mine)
    os.chown(jobs / "run", MALLORY, OTHERS, follow_symlinks=False)
    assert f"'{jobs / 'run'}' is a link of user 12002" in attempt(jobs)
    assert sorted(path.name for path in mine.iterdir()) == ["spec.toml"]


def test_a_run_s_folder_that_others_may_write_is_refused_and_a_new_one_is_private(place):
    jobs = make(place / "jobs", ALICE, 0o2775, PROJECT)
    assert attempt(jobs) == ""
    assert (jobs / "run").stat().st_mode & 0o777 == 0o700
    (jobs / "run").chmod(0o775)
    assert "other users may write to" in attempt(jobs)
    make(jobs / "theirs", MALLORY, 0o755)
    assert "belongs to user 12002" in attempt(jobs, "theirs")
    jobs.chmod(0o777)
    said = attempt(jobs, "new")
    assert f"every user may write to '{jobs}'; type: chmod o-w '{jobs}'" in said
    assert not (jobs / "new").exists()


def test_in_a_container_root_of_the_host_is_trusted(place, monkeypatch):
    folder = make(place / "folder", 65534, 0o755)
    with user(ALICE, PROJECT):
        assert "belongs to user" in explain_distrust(folder)
        monkeypatch.setattr("slurmddp.trust._is_in_user_namespace", lambda: True)
        assert explain_distrust(folder) == ""


def test_in_a_real_user_namespace_too(place):
    code = (
        "import sys; from pathlib import Path; from slurmddp.trust import *; print(explain_distrust(Path(sys.argv[1])))"
    )
    command = ["unshare", "--user", "--map-root-user", sys.executable, "-c", code, place]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode and "unshare failed" in done.stderr:
        pytest.skip(done.stderr)
    assert done.stdout.strip() == "", done.stderr


def _project_folder(place):
    return make(place / "jobs", MALLORY, 0o2775, PROJECT)


def _access_list(place):
    folder = make(place / "jobs", MALLORY, 0o755)
    give(folder, user_12001=7)
    return folder


def _scratch(place):
    return make(place / "jobs", 0, 0o1777)


def _home_that_root_cannot_enter(place):
    return make(make(place / "home", ALICE, 0o700) / "jobs", ALICE, 0o700)


def _folder_of_one_s_own_beside_a_workspace(place):
    make(place / "workspace", MALLORY, 0o755)
    return make(place / "runs", ALICE, 0o755)


def _linked_home(place):
    make(make(place / "data", 0, 0o755) / "alice", ALICE, 0o755)
    (place / "home").symlink_to("data/alice")
    return place / "home"


def _automounted_parent(place):
    parent = make(place / "net", 0, 0o755)
    home = make(parent / "alice", ALICE, 0o700)
    parent.chmod(0o555)
    return home


def _other_mount(place):
    folder = Path(tempfile.mkdtemp(dir="/dev/shm"))
    os.chown(folder, ALICE, OTHERS)
    (place / "jobs").symlink_to(folder)
    return place / "jobs"


def _default_list_of_a_group(place):
    folder = make(place / "jobs", MALLORY, 0o2775, PROJECT)
    give(folder, "default", group_13001=7, group_13002=7)
    return folder


def _run_of_an_older_version(place):
    for folder in (jobs := make(place / "jobs", ALICE, 0o755), jobs / "run", jobs / "run" / "code"):
        folder.exists() or make(folder, ALICE, 0o755)
    (jobs / "run" / "code").chmod(0o775)
    return jobs


SHARED = (
    _project_folder,
    _access_list,
    _scratch,
    _home_that_root_cannot_enter,
    _folder_of_one_s_own_beside_a_workspace,
    _linked_home,
    _automounted_parent,
    _other_mount,
    _default_list_of_a_group,
    _run_of_an_older_version,
)


@pytest.mark.parametrize("arrange", SHARED, ids=lambda arrange: arrange.__name__.strip("_"))
def test_a_run_lies_where_people_share_and_its_job_finds_it_there(place, arrange):
    folder = arrange(place)
    try:
        for _ in range(2):  # the second submission continues it
            assert attempt(folder) == ""
        with user(ALICE, PROJECT):
            assert RunDir(folder / "run").explain_strange() == "", "asked by the job"
            assert (folder / "run" / "logs").is_dir()
    finally:
        if folder.resolve().is_relative_to("/dev/shm"):  # noqa: S108 as above
            shutil.rmtree(folder.resolve())


def test_root_of_a_container_keeps_its_runs_outside_of_another_user_s_workspace(place):
    workspace = make(place / "workspace", ALICE, 0o755)
    with pytest.raises(UsageError, match="belongs to user 12001, who does not share it with you; or choose --runs-dir"):
        RunDir(workspace / "jobs" / "run").create()
    assert not (workspace / "jobs").exists()


def test_a_user_without_rights_is_told_in_a_line_where_root_is_nobody(place):
    home = make(place / "home", ALICE, 0o700)
    with (
        user(65534, 65534),
        pytest.raises(UsageError, match="belongs to user 12001, who does not share it"),
    ):
        RunDir(home / "jobs" / "run").create()

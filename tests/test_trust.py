"""Who may change what is at a path, for two real users, alice and mallory; root makes the folders."""

import grp  # noqa: F401 loaded while root can read its Python, which the users of these tests cannot
import os
import pwd  # noqa: F401 as above
import struct
import subprocess
import sys
from contextlib import contextmanager

import pytest

from slurmddp.errors import UsageError
from slurmddp.runs.layout import RunDir
from slurmddp.trust import explain_distrust, explain_foreign

ALICE, MALLORY, PROJECT, OTHERS = 12001, 12002, 13001, 13002
TAGS = {"user::": 1, "user": 2, "group::": 4, "group": 8, "mask": 16, "other": 32}

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can become two users")


@contextmanager
def user(uid, *groups):
    """Be a user in these groups, the first of which is the primary one."""
    before = os.getgroups()
    os.setgroups(groups)
    os.setegid(groups[0])
    os.seteuid(uid)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(before)


@pytest.fixture
def place(tmp_path):
    """A folder that every user can reach, below folders of root."""
    for folder in (tmp_path, *tmp_path.parents):
        if folder != folder.parent and len(folder.parts) > 2:
            folder.chmod(0o755)
    return tmp_path


def make(path, uid, mode, gid=OTHERS):
    path.mkdir()
    os.chown(path, uid, gid)
    path.chmod(mode)
    return path


def give(path, **permissions):
    """Add an access list of Linux to a folder, as setfacl does; the mask is rwx."""
    named = [(TAGS[key.split("_")[0]], perm, int(key.split("_")[1])) for key, perm in permissions.items()]
    entries = [(1, 7, -1), *named, (4, 5, -1), (16, 7, -1), (32, 5, -1)]
    raw = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in sorted(entries))
    try:
        os.setxattr(path, "system.posix_acl_access", raw)
    except OSError as error:
        pytest.skip(f"no access lists here: {error}")


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

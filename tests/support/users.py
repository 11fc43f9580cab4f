"""Two real users, alice and mallory, as which root acts, and what they make."""

import grp  # noqa: F401 loaded while root can read its Python, which these users cannot
import os
import pwd  # noqa: F401 as above
import struct
from contextlib import contextmanager

import pytest

ALICE, MALLORY, PROJECT, OTHERS = 12001, 12002, 13001, 13002
_TAGS = {"user::": 1, "user": 2, "group::": 4, "group": 8, "mask": 16, "other": 32}


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


def open_to_all(folder):
    """Let every user reach a folder of pytest's, below folders of root; return it."""
    for place in (folder, *folder.parents):
        if place != place.parent and len(place.parts) > 2:
            place.chmod(0o755)
    return folder


def make(path, uid, mode, gid=OTHERS):
    path.mkdir()
    os.chown(path, uid, gid)
    path.chmod(mode)
    return path


def give(path, kind="access", **permissions):
    """Add an access list of Linux to a folder, as setfacl does; the mask is rwx. `default`: what new files get."""
    named = [(_TAGS[key.split("_")[0]], perm, int(key.split("_")[1])) for key, perm in permissions.items()]
    entries = [(1, 7, -1), *named, (4, 5, -1), (16, 7, -1), (32, 5, -1)]
    raw = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in sorted(entries))
    try:
        os.setxattr(path, f"system.posix_acl_{kind}", raw)
    except OSError as error:
        pytest.skip(f"no access lists here: {error}")


def plant(folder, uid=MALLORY):
    """Give a folder, with all that is in it, to another user; return it."""
    for path in (folder, *folder.rglob("*")):
        os.chown(path, uid, uid, follow_symlinks=False)
    return folder

"""Who may change what is at a path: this user and root alone, or somebody else. Reads the status of files, never them.

Trusted are this user, root, and whoever this user shares a project folder with: a folder that its group or an access
list lets *this user* write to. Others are strangers: the owner of another folder, and everybody where every user may
write. In a folder with the sticky bit, as /tmp, a stranger cannot replace what belongs to somebody else.
"""

import errno
import os
import stat
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from slurmddp.text import quote_value

_MOST_LINKS: Final = 40
"""As many as Linux follows (path_resolution(7))."""
_ACL: Final = "system.posix_acl_access"
_ACL_ENTRY: Final = struct.Struct("<HHI")
"""Tag, permissions and id of one entry, behind a version of 4 bytes (linux/posix_acl_xattr.h)."""
_ACL_USER, _ACL_GROUP_OWNER, _ACL_GROUP, _ACL_MASK = 0x02, 0x04, 0x08, 0x10


def explain_distrust(path: Path) -> str:
    """Return why a stranger may change or replace what is at a path, in words; empty if none may.

    Each folder above the path is looked at, and each link on the way to it. A part that does not exist yet is trusted
    if the folders above it are. Raises OSError when a folder cannot be looked at.
    """
    for place, info in _walk(path):
        if stat.S_ISLNK(info.st_mode):
            if not _is_trusted_owner(info):
                return f"{quote_value(str(place))} is a link of {_name_user(info.st_uid)}"
        elif why := _explain_one(place, info):
            return why
    return ""


def explain_foreign(path: Path, *, below: bool = False) -> str:
    """Return why a path is not a folder or a file of this user's own that no one else may write to; empty if it is.

    With `below`, nothing in the folder may be of another user. Links are not followed: somebody else could let them
    lead elsewhere. Raises OSError when it is not there.
    """
    info = path.lstat()
    if stat.S_ISLNK(info.st_mode):
        return f"{quote_value(str(path))} is a link"
    if info.st_uid != os.geteuid():
        return f"{quote_value(str(path))} belongs to {_name_user(info.st_uid)}"
    everyone, users, groups = _find_writers(path, info)
    if everyone or users - {os.geteuid()} or groups:
        return f"other users may write to {quote_value(str(path))}; type: chmod go-w {quote_value(str(path))}"
    for one in path.rglob("*") if below else ():
        with suppress(FileNotFoundError):  # programs remove files
            if not _is_trusted_owner(info := one.lstat()):
                return f"{quote_value(str(one))} belongs to {_name_user(info.st_uid)}"
    return ""


def explain_owner(*infos: os.stat_result) -> str:
    """Return why another user can have written a file, or the link to it; the rule of git's safe.directory."""
    for info in infos:
        if not _is_trusted_owner(info):
            return f"it belongs to {_name_user(info.st_uid)}, who is neither you nor root"
        if info.st_mode & stat.S_IWOTH and not stat.S_ISLNK(info.st_mode):
            return "every user may write to it; type `chmod o-w` on it to use it"
    return ""


def _walk(path: Path, links: int = 0) -> Iterator[tuple[Path, os.stat_result]]:
    """Yield each folder and link on the way to a path, from the root on, and the path itself, as far as they exist."""
    if links > _MOST_LINKS:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
    here, parts = Path("/"), Path.cwd().joinpath(path).parts[1:]
    yield here, here.lstat()
    for at, name in enumerate(parts, 1):
        place = here.parent if name == ".." else here / name
        try:
            info = place.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return
        yield place, info
        if stat.S_ISLNK(info.st_mode):  # the way to where it leads, from the root again
            yield from _walk(here.joinpath(place.readlink(), *parts[at:]), links + 1)
            return
        here = place


def _explain_one(place: Path, info: os.stat_result) -> str:
    everyone, users, groups = _find_writers(place, info)
    is_sticky = stat.S_ISDIR(info.st_mode) and bool(info.st_mode & stat.S_ISVTX)
    if everyone and not is_sticky:
        return f"every user may write to {quote_value(str(place))}; type: chmod o-w {quote_value(str(place))}"
    has_this_user = os.geteuid() in users or not groups.isdisjoint({os.getegid(), *os.getgroups()})
    if _is_trusted_owner(info) or everyone or has_this_user:
        return ""
    return f"{quote_value(str(place))} belongs to {_name_user(info.st_uid)}, who does not share it with you"


def _find_writers(place: Path, info: os.stat_result) -> tuple[bool, set[int], set[int]]:
    """Return if everyone may write, and which users and groups besides the owner, by the mode and by the access list.

    The mask of the list is the mode of the group (acl(5)).
    """
    everyone = bool(info.st_mode & stat.S_IWOTH)
    if not info.st_mode & stat.S_IWGRP:
        return everyone, set(), set()
    raw = b""
    with suppress(OSError):  # most file systems have lists, few files have one
        raw = os.getxattr(place, _ACL, follow_symlinks=False)
    if not raw:
        return everyone, set(), {info.st_gid} - _own_groups()
    entries = list(_ACL_ENTRY.iter_unpack(raw[4 : 4 + (len(raw) - 4) // _ACL_ENTRY.size * _ACL_ENTRY.size]))
    mask = next((permissions for tag, permissions, _ in entries if tag == _ACL_MASK), 0o7)
    writing = [(tag, number) for tag, permissions, number in entries if permissions & mask & 0o2]
    groups = {number for tag, number in writing if tag == _ACL_GROUP}
    groups |= {info.st_gid for tag, _ in writing if tag == _ACL_GROUP_OWNER} - _own_groups()
    return everyone, {number for tag, number in writing if tag == _ACL_USER}, groups


def _own_groups() -> set[int]:
    """Return the group that only this user is in, as many systems make it: it has the user's name, and no members."""
    import grp  # noqa: PLC0415 - needed only where a group may write
    import pwd  # noqa: PLC0415

    with suppress(KeyError):
        user = pwd.getpwuid(os.geteuid())
        group = grp.getgrgid(user.pw_gid)
        if group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}:
            return {group.gr_gid}
    return set()


def _is_trusted_owner(info: os.stat_result) -> bool:
    """Return whether an owner is this user or root; in a container, root of the host has the id of nobody."""
    unmapped = Path("/proc/sys/kernel/overflowuid")
    return info.st_uid in (0, os.geteuid()) or (
        _is_in_user_namespace() and str(info.st_uid) == unmapped.read_text().strip()
    )


def _is_in_user_namespace() -> bool:
    """Return whether some users of the host have no id here (user_namespaces(7))."""
    with suppress(OSError):
        return Path("/proc/self/uid_map").read_text().split() != ["0", "0", str(2**32 - 1)]
    return False


def _name_user(number: int) -> str:
    import pwd  # noqa: PLC0415 - needed only for a message

    with suppress(KeyError):
        return f"user {quote_value(pwd.getpwuid(number).pw_name)}"
    return f"user {number}"

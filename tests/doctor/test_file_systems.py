"""File systems are told by the system's own list."""

from pathlib import Path

import pytest

from slurmddp.doctor import file_systems

LIST = r"""
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/root rw
30 22 0:26 / /tmp rw - tmpfs tmpfs rw
31 22 0:40 / /home rw,relatime shared:2 - nfs4 server:/home rw,vers=4.2
32 31 0:41 / /home/me/my\040disk rw - ext4 /dev/sdb rw
33 22 0:42 / /scratch rw - lustre mds@tcp:/scratch rw
torn line
"""


@pytest.fixture(autouse=True)
def listed(monkeypatch, tmp_path):
    (tmp_path / "mountinfo").write_text(LIST)
    monkeypatch.setattr(file_systems, "MOUNTS", tmp_path / "mountinfo")
    file_systems._mounts.cache_clear()
    yield
    file_systems._mounts.cache_clear()


@pytest.mark.parametrize(
    ("path", "kind", "shared", "own"),
    [
        ("/home/me/jobs/not/there", "nfs4", True, False),
        ("/home/me/my disk/jobs", "ext4", False, False),
        ("/scratch", "lustre", True, False),
        ("/scratches", "ext4", False, False),
        ("/tmp/jobs", "tmpfs", False, True),  # noqa: S108 - only looked at
        ("/srv", "ext4", False, False),
    ],
)
def test_the_longest_mount_point_tells(path, kind, shared, own):
    assert file_systems.type_of(Path(path)) == kind
    assert (file_systems.is_shared(Path(path)), file_systems.is_own(Path(path))) == (shared, own)


def test_without_the_list_nothing_is_known(monkeypatch, tmp_path):
    monkeypatch.setattr(file_systems, "MOUNTS", tmp_path / "none")
    file_systems._mounts.cache_clear()
    assert file_systems.type_of(Path("/srv")) == ""

"""Checkpoints on disk: whatever happens to the newest, the one before it is found."""

import errno
import hashlib
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import zlib
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from slurmddp import exit_codes
from slurmddp.errors import FencedError, PeerError, RankError
from slurmddp.runs import files, ownership
from slurmddp.runs.ownership import Ownership
from slurmddp.runtime.checkpoint import store as checkpoints
from slurmddp.runtime.checkpoint.store import FORMAT, Store, ensure_identity
from slurmddp.runtime.exiting.classify import judge

IDENTITY = "0123456789abcdef" * 2
NOTE = {"job": "17", "attempt": "0.0", "world_size": 4}


def parts(step: int) -> dict:
    return {"model.pt": {"weight": torch.full((20,), float(step))}, "state.pt": {"step": step, "name": "é"}}


def store_in(folder, said=None, **changes) -> Store:
    said = [] if said is None else said
    return Store(
        folder, **{"identity": IDENTITY, "keep": 3, "check_owner": lambda: None, "say": said.append, **changes}
    )


def names(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != "identity")


@pytest.fixture(scope="module")
def two(tmp_path_factory) -> Path:
    """The checkpoints of steps 100 and 200."""
    folder = tmp_path_factory.mktemp("two")
    for step in (100, 200):
        store_in(folder).write(step, parts(step), NOTE)
    return folder


@pytest.fixture(scope="module")
def long(tmp_path_factory) -> Path:
    """The checkpoints of steps 100 and 200, the second of long records."""
    folder = tmp_path_factory.mktemp("long")
    store_in(folder).write(100, parts(100), NOTE)
    store_in(folder).write(200, {"model.pt": [torch.randn(2**14 + size) for size in range(3)]}, NOTE)
    return folder


@contextmanager
def copy_of(folder):
    """A folder in memory: these tests are many, and no power fails here."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as temporary:
        yield Path(shutil.copytree(folder, Path(temporary) / "checkpoints"))


def check_falls_back(folder, said_of: str) -> None:
    said: list[str] = []
    store = store_in(folder, said)
    found = store.newest()
    assert found.step == 100
    assert store.load(found, "state.pt") == parts(100)["state.pt"]
    assert torch.equal(store.load(found, "model.pt")["weight"], parts(100)["model.pt"]["weight"])
    assert len(said) == 1
    assert re.match(rf"checkpoint step-000000200 is broken: .*{said_of}", said[0])
    assert names(folder) == ["broken-step-000000200", "step-000000100"]
    assert store.newest() == found and len(said) == 1


def test_what_was_written_is_found(tmp_path):
    store = store_in(tmp_path / "runs" / "checkpoints")
    assert store.newest() is None
    digest = store.write(100, parts(100), NOTE)
    found = store.newest()
    assert (found.step, found.digest, found.folder.name) == (100, digest, "step-000000100")
    assert names(found.folder) == ["manifest.json", "model.pt", "state.pt"]
    assert store.load(found, "state.pt") == parts(100)["state.pt"]


def test_the_manifest_is_json_that_any_crc32_agrees_with(two):
    folder = two / "step-000000200"
    manifest = json.loads((folder / "manifest.json").read_text())
    assert (manifest["format"], manifest["step"], manifest["identity"], manifest["note"]) == (2, 200, IDENTITY, NOTE)
    for name, file in manifest["files"].items():
        content = (folder / name).read_bytes()
        assert file == {"size": len(content), "crc32": f"{zlib.crc32(content):08x}"}


@pytest.fixture(params=[True, False], ids=["with torch's sums", "without"])
def _torch_sums(request):
    """What a program may have chosen; before torch 2.6 there is no choice."""
    choose = getattr(torch.serialization, "set_crc32_options", None)
    if not choose and not request.param:
        pytest.skip("this torch always sums")
    if choose:
        choose(compute_crc32=request.param)
    yield
    if choose:
        choose(compute_crc32=True)


@pytest.mark.usefixtures("_torch_sums")
@pytest.mark.parametrize("sizes", [[3], [2**14 - 1], [2**14], [2**14 + 1, 5], [2**21 + 3, 2**15, 2**15], []])
def test_the_crc32_of_a_file_is_right_for_records_of_any_length(tmp_path, sizes):
    """Those of long records are torch's, joined to that of what is around them."""
    tensors = [torch.randn(size) for size in sizes]
    for number, states in enumerate([[tensors], tensors, [{"numbers": list(range(50_000)), "tensors": tensors}]]):
        path = tmp_path / str(number)
        found, spans = checkpoints.save_states(states, path)
        content = path.read_bytes()
        assert found == {"size": len(content), "crc32": f"{zlib.crc32(content):08x}"}
        assert sum(length for _, length in spans) == len(content)


FILES = st.sampled_from(["manifest.json", "model.pt", "state.pt"])
PLACES = st.floats(0, 1, exclude_max=True)


CUT = st.builds(lambda place: lambda content: content[: int(len(content) * place)], PLACES)
MORE = st.builds(lambda more: lambda content: content + more, st.binary(min_size=1, max_size=9))
ZEROS = st.builds(
    lambda place, length: lambda content: _zeroed(content, int(len(content) * place), length),
    *(PLACES, st.integers(1, 4096)),
)
FLIPPED = st.builds(
    lambda place, bit: lambda content: _flipped(content, 8 * int(len(content) * place) + bit),
    *(PLACES, st.integers(0, 7)),
)


def _zeroed(content: bytes, begin: int, length: int) -> bytes:
    return (content[:begin] + bytes(length) + content[begin + length :])[: len(content)]


def _flipped(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@settings(deadline=None, max_examples=800)
@given(FILES, CUT | MORE | ZEROS | FLIPPED)
def test_a_file_that_is_damaged_anywhere_is_seen(two, name, damage):
    """Cut off, with bytes too many, with a range of zeros, with one other bit."""
    with copy_of(two) as folder:
        path = folder / "step-000000200" / name
        damaged = damage(path.read_bytes())
        assume(damaged != path.read_bytes())
        path.write_bytes(damaged)
        check_falls_back(folder, name)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=9,
)
WRONG_NAMES = st.sampled_from(["../x", "/dev/zero", "", ".", "..", "a/b", "x\0", "é" * 300])


def forge(folder, content) -> None:
    """Write a manifest whose own checksum is right."""
    rest = json.dumps(content, indent=1)[1:] + "\n"
    digest = hashlib.sha256(rest.encode()).hexdigest()
    (folder / "step-000000200" / "manifest.json").write_text(f'{{\n "checksum": "{digest}",{rest}')


@settings(deadline=None, max_examples=100)
@given(CUT | MORE | ZEROS | FLIPPED)
def test_damage_within_and_around_long_records_is_seen(long, damage):
    with copy_of(long) as folder:
        path = folder / "step-000000200" / "model.pt"
        damaged = damage(path.read_bytes())
        assume(damaged != path.read_bytes())
        path.write_bytes(damaged)
        check_falls_back(folder, "model.pt")


def test_a_checkpoint_of_format_1_is_read_and_verified_by_its_sha256(two):
    """It was written before, by sha256."""
    with copy_of(two) as folder:
        step = folder / "step-000000200"
        content = json.loads((step / "manifest.json").read_text())
        del content["checksum"]
        for name, file in content["files"].items():
            del file["crc32"]
            file["sha256"] = hashlib.sha256((step / name).read_bytes()).hexdigest()
        forge(folder, {**content, "format": 1})
        assert store_in(folder).newest().step == 200
        (step / "model.pt").write_bytes(_flipped((step / "model.pt").read_bytes(), 4321))
        check_falls_back(folder, "model.pt does not match its checksum")


@settings(deadline=None, max_examples=300)
@given(key=st.sampled_from(["format", "step", "identity", "note", "files"]), value=JSON, is_missing=st.booleans())
def test_a_manifest_with_a_right_checksum_and_wrong_values_is_broken(two, key, value, is_missing):
    """Five of such manifests ended in a KeyError, an AttributeError or a ValueError."""
    with copy_of(two) as folder:
        content = json.loads((folder / "step-000000200" / "manifest.json").read_text())
        del content["checksum"]
        assume(type(value) is not type(content[key]) or (key == "files" and value != content[key]) or is_missing)
        if is_missing:
            del content[key]
        else:
            content[key] = value
        forge(folder, content)
        check_falls_back(folder, "manifest.json|is broken")


@settings(deadline=None, max_examples=100)
@given(name=WRONG_NAMES | st.text(max_size=9), file=JSON)
def test_a_manifest_that_names_what_is_no_file_of_the_checkpoint_is_broken(two, name, file):
    with copy_of(two) as folder:
        content = json.loads((folder / "step-000000200" / "manifest.json").read_text())
        del content["checksum"]
        content["files"][name] = file if isinstance(file, dict) else {"size": 0, "sha256": "0" * 64}
        forge(folder, content)
        check_falls_back(folder, "")


@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "link", "links", "large"])
@pytest.mark.parametrize("name", ["manifest.json", "model.pt"])
def test_what_is_no_regular_file_is_broken_and_read_no_further(two, name, kind, monkeypatch):
    """A device that never ends kept a rank for ever."""
    with copy_of(two) as folder:
        path = folder / "step-000000200" / name
        content = path.read_bytes()
        path.unlink()
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "folder":
            path.mkdir()
        elif kind == "large":
            monkeypatch.setattr(files, "LARGEST_BYTES", len(content))
            path.write_bytes(content + b" ")
        else:
            (folder / "elsewhere").write_bytes(content)
            path.symlink_to({"device": "/dev/zero", "link": folder / "elsewhere", "links": path}[kind])
        said: list[str] = []
        assert store_in(folder, said).newest().step == 100
        assert said[0].startswith("checkpoint step-000000200 is broken: ")


def test_a_disk_that_is_full_when_a_run_begins_is_a_case_for_another_attempt(tmp_path, monkeypatch):
    """It ended the rank with status 77, which is never tried again. The supervisor waits for space before a start."""

    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(checkpoints, "create_exclusively", fail)
    with pytest.raises(OSError, match="No space left on device") as raised:
        ensure_identity(tmp_path)
    assert judge(raised.value).status == exit_codes.RETRYABLE


def test_every_bit_of_a_manifest_counts(two):
    with copy_of(two) as folder:
        manifest = (folder / "step-000000200" / "manifest.json").read_bytes()
        for position in range(len(manifest) * 8):
            with pytest.raises(checkpoints._BrokenError):
                checkpoints._decode(_flipped(manifest, position))


@pytest.mark.parametrize("name", ["manifest.json", "model.pt", "state.pt"])
def test_a_file_that_is_gone_is_seen(two, name):
    with copy_of(two) as folder:
        (folder / "step-000000200" / name).unlink()
        check_falls_back(folder, name)


@pytest.mark.parametrize("make", [Path.mkdir, Path.touch])
def test_a_step_without_a_manifest_is_none(two, make):
    with copy_of(two) as folder:
        shutil.rmtree(folder / "step-000000200")
        make(folder / "step-000000200")
        check_falls_back(folder, "manifest.json")


def test_a_checkpoint_under_the_name_of_another_step_is_none(two):
    with copy_of(two) as folder:
        shutil.rmtree(folder / "step-000000200")
        shutil.copytree(folder / "step-000000100", folder / "step-000000200")
        check_falls_back(folder, "its manifest.json is that of step 100")


def test_files_that_are_no_checkpoints_are_passed_over(two):
    with copy_of(two) as folder:
        for name in (".step-000000300.x", "step-300", "step-000000300.bak", "other"):
            shutil.copytree(folder / "step-000000200", folder / name)
        assert store_in(folder).newest().step == 200


def test_when_all_are_broken_there_is_none_and_none_is_deleted(two):
    with copy_of(two) as folder:
        for path in folder.glob("*/model.pt"):
            path.write_bytes(b"")
        said: list[str] = []
        assert store_in(folder, said).newest() is None
        assert names(folder) == ["broken-step-000000100", "broken-step-000000200"] and len(said) == 2


def test_a_step_that_breaks_twice_is_set_aside_twice(two):
    with copy_of(two) as folder:
        for _ in range(3):
            (folder / "step-000000200" / "model.pt").unlink()
            assert store_in(folder).newest().step == 100
            store_in(folder).write(200, parts(200), NOTE)
        broken = [f"broken-step-000000200{suffix}" for suffix in ("", ".1", ".2")]
        assert names(folder) == [*broken, "step-000000100", "step-000000200"]


def test_a_disk_that_cannot_be_asked_breaks_nothing(two, monkeypatch):
    """A stale handle passes; the checkpoint must be there afterwards."""

    def stale(path, *_):
        raise OSError(errno.ESTALE, "Stale file handle", str(path))

    with copy_of(two) as folder:
        monkeypatch.setattr(os, "open", stale)
        with pytest.raises(OSError, match="Stale file handle"):
            store_in(folder).newest()
        monkeypatch.undo()
        assert store_in(folder).newest().step == 200


def test_another_runs_checkpoint_is_refused(two):
    with copy_of(two) as folder:
        store = store_in(folder, identity="f" * 32)
        words = (
            f"belongs to another run \\({IDENTITY}; this one is {'f' * 32}\\); remove it, or start over with --reset"
        )
        with pytest.raises(RankError, match=words):
            store.newest()
        with pytest.raises(RankError, match=words):
            store.write(200, parts(200), NOTE)
        assert names(folder) == names(two)


def test_another_format_is_refused(two, monkeypatch):
    monkeypatch.setattr(checkpoints, "FORMAT", FORMAT + 1)
    words = "has format 2, this slurmddp reads 1 and 3; use the one that wrote it, or start"
    with pytest.raises(RankError, match=words):
        store_in(two).newest()


def test_a_step_that_is_there_is_kept(two):
    with copy_of(two) as folder:
        before = (folder / "step-000000200").stat().st_ino
        digest = store_in(folder).newest().digest
        assert store_in(folder).write(200, parts(200), {}) == digest
        assert (folder / "step-000000200").stat().st_ino == before


def test_a_step_that_is_there_and_broken_is_written_anew(two):
    with copy_of(two) as folder:
        (folder / "step-000000200" / "model.pt").write_bytes(b"")
        said: list[str] = []
        digest = store_in(folder, said).write(200, parts(200), NOTE)
        assert store_in(folder).newest().digest == digest
        assert names(folder) == ["broken-step-000000200", "step-000000100", "step-000000200"] and len(said) == 1


def test_checkpoints_that_somebody_removed_are_made_anew(tmp_path):
    store = store_in(tmp_path / "checkpoints")
    store.write(100, parts(100), NOTE)
    shutil.rmtree(tmp_path / "checkpoints")
    store.write(200, parts(200), NOTE)
    assert store.newest().step == 200 and ensure_identity(tmp_path / "checkpoints") == IDENTITY


def test_the_newest_stay(tmp_path):
    for step in (1, 5, 20, 100):
        store_in(tmp_path, keep=2).write(step, parts(step), NOTE)
        assert store_in(tmp_path).newest().step == step
    assert names(tmp_path) == ["step-000000020", "step-000000100"]


def test_broken_ones_are_not_counted_among_those_that_stay(tmp_path):
    for step in (1, 2, 3):
        store_in(tmp_path).write(step, parts(step), NOTE)
    (tmp_path / "step-000000002" / "model.pt").unlink()
    store_in(tmp_path, keep=2).write(4, parts(4), NOTE)
    assert names(tmp_path) == ["broken-step-000000002", "step-000000003", "step-000000004"]


def test_another_runs_older_checkpoint_is_not_deleted(tmp_path):
    store_in(tmp_path, identity="f" * 32).write(1, parts(1), NOTE)
    for step in (2, 3):
        store_in(tmp_path, keep=1).write(step, parts(step), NOTE)
    assert names(tmp_path) == ["step-000000001", "step-000000003"]


def test_one_that_cannot_be_deleted_does_not_spoil_the_new_one(tmp_path, monkeypatch):
    said: list[str] = []
    store = store_in(tmp_path, said, keep=1)
    store.write(1, parts(1), NOTE)
    rename = Path.rename

    def refuse(path, target):
        if path.name == "step-000000001":
            raise PermissionError(errno.EACCES, "Permission denied")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", refuse)
    store.write(2, parts(2), NOTE)
    assert said == ["checkpoint step-000000001 cannot be deleted: Permission denied"]
    assert names(tmp_path) == ["step-000000001", "step-000000002"]


def test_what_a_dead_writer_left_goes(tmp_path):
    (tmp_path / ".step-000000001.abc").mkdir()
    (tmp_path / ".step-000000001.abc" / "model.pt").write_bytes(b"half")
    store_in(tmp_path).write(2, parts(2), NOTE)
    assert names(tmp_path) == ["step-000000002"]


class TakenOver(Ownership):
    """An owner whose run another attempt takes over just before the given look at the file."""

    def __init__(self, path, looks: int) -> None:
        super().__init__(path, "main 17 0.0")
        self.looks = looks
        path.write_text(self.line)

    def check(self) -> None:
        if not self.looks:
            self.path.write_text("main 18 0.0")
        self.looks -= 1
        super().check()


def test_a_fenced_writer_writes_nothing(two, tmp_path):
    with copy_of(two) as folder:
        (folder / ".step-000000300.abc").mkdir()
        before = names(folder)
        with pytest.raises(FencedError, match="main 18 0.0"):
            store_in(folder, check_owner=TakenOver(tmp_path / "owner", 0).check).write(300, parts(300), NOTE)
        assert names(folder) == before


def test_a_fenced_reader_sets_nothing_aside(two, tmp_path):
    with copy_of(two) as folder:
        (folder / "step-000000200" / "model.pt").unlink()
        with pytest.raises(FencedError):
            store_in(folder, check_owner=TakenOver(tmp_path / "owner", 0).check).newest()
        assert names(folder) == names(two)


def test_a_run_taken_over_at_any_look_loses_nothing(two, tmp_path):
    """The writer looks before it begins, before the commit and before each deletion."""
    ends = []
    for looks in range(8):
        with copy_of(two) as folder:
            try:
                store_in(folder, keep=1, check_owner=TakenOver(tmp_path / "owner", looks).check).write(
                    300, parts(300), NOTE
                )
            except FencedError:
                ends.append((looks, [path.name for path in folder.glob("step-*")]))
            assert store_in(folder).newest().step >= 200
            (folder / ".step-000000300.abc").mkdir(exist_ok=True)
    old = ["step-000000100", "step-000000200"]
    assert [sorted(left) for _, left in ends[:2]] == [old, old]
    assert sorted(ends[2][1]) == [*old, "step-000000300"]
    assert len(ends) < 8


class Calls:
    """Calls something while it is saved."""

    def __init__(self, work) -> None:
        self.work = work

    def __reduce__(self):  # noqa: D105 the class says it
        self.work()
        return (str, ())


def test_a_writer_whose_files_the_next_owner_took_away_says_who_it_is(two, tmp_path):
    owner = TakenOver(tmp_path / "owner", 99)

    def take_over() -> None:
        owner.path.write_text("main 18 0.0")
        store_in(folder).write(300, parts(300), NOTE)

    with copy_of(two) as folder:
        with pytest.raises(FencedError, match="main 18 0.0"):
            store_in(folder, check_owner=owner.check).write(300, {"a.pt": Calls(take_over), **parts(300)}, NOTE)
        assert store_in(folder).newest().step == 300
        assert names(folder) == ["step-000000100", "step-000000200", "step-000000300"]


@pytest.mark.parametrize("error", [ZeroDivisionError, RuntimeError, KeyboardInterrupt])
def test_a_state_that_cannot_be_saved_leaves_nothing_behind(two, error):
    def fail() -> None:
        raise error

    with copy_of(two) as folder:
        with pytest.raises(error):
            store_in(folder).write(300, {**parts(300), "z.pt": Calls(fail)}, NOTE)
        assert names(folder) == names(two)


@contextmanager
def no_file_larger_than(limit: int):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@settings(deadline=None, max_examples=60)
@given(PLACES)
def test_a_disk_that_refuses_leaves_the_older_one_and_nothing_else(two, place):
    largest = max(path.stat().st_size for path in two.glob("*/*"))
    with copy_of(two) as folder:
        with no_file_larger_than(int(largest * place)), pytest.raises(OSError) as caught:  # noqa: PT011 by its number
            store_in(folder).write(300, parts(300), NOTE)
        assert caught.value.errno == errno.EFBIG
        assert names(folder) == names(two)
        assert store_in(folder).newest().step == 200


FULL_DISK = """
import errno, sys, torch
from pathlib import Path
from slurmddp.runtime.checkpoint.store import Store
folder = Path(sys.argv[1])
store = Store(folder, identity="1", keep=3, check_owner=lambda: None, say=print)
store.write(1, {"model.pt": torch.zeros(10_000)}, {})
for size in (100_000, 240_000, 249_000, 250_000, 251_000, 252_000, 10**7):
    try:
        store.write(2, {"model.pt": torch.zeros(size)}, {})
    except OSError as error:
        assert error.errno == errno.ENOSPC, error
        assert sorted(path.name for path in folder.iterdir()) == ["identity", "step-000000001"]
        assert store.newest().step == 1
        print("full at", size)
    else:
        store.newest().folder.rename(folder / "other")
        __import__("shutil").rmtree(folder / "other")
"""


def test_a_full_disk_leaves_the_older_one_and_nothing_else(tmp_path):
    unshare = ["unshare", "--mount", "--map-root-user"]
    if subprocess.run([*unshare, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no user namespaces here")
    mount = 'mount -t tmpfs -o size=1m none "$1" && exec "$2" -c "$3" "$1"'
    command = [*unshare, "sh", "-c", mount, "sh", str(tmp_path), sys.executable, FULL_DISK]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "full at 252000" in done.stdout and "full at 10000000" in done.stdout
    assert "full at 100000\n" not in done.stdout


KILLED = """
import os, random, signal, sys, time, torch
from pathlib import Path
from slurmddp.runtime.checkpoint.store import Store

store = Store(Path(sys.argv[1]), identity="1", keep=2, check_owner=lambda: None, say=lambda line: sys.exit(line))
newest = 0
for seed in range(20):
    read, write = os.pipe()
    child = os.fork()
    if not child:
        for step in range(newest + 1, newest + 10_000):
            store.write(step, {name: torch.full((3000,), step) for name in ("model.pt", "state.pt")}, {})
            os.write(write, b"%9d" % step)
    os.close(write)
    os.read(read, 9)
    time.sleep(random.Random(seed).random() * 0.05)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    durable = int((os.read(read, 1_000_000) or b"%d" % (newest + 1))[-9:])
    found = store.newest()
    assert durable <= found.step <= durable + 1, (durable, found.step)
    assert store.load(found, "state.pt").tolist() == [found.step] * 3000
    newest = found.step
store.write(newest + 1, {"model.pt": 1}, {})
print(sorted(path.name for path in store.newest().folder.parent.iterdir()) == [
    "identity", f"step-{newest:09d}", f"step-{newest + 1:09d}"])
"""


def test_a_writer_killed_at_any_instant_leaves_what_it_called_durable(tmp_path):
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")


def test_another_rank_waits_until_it_sees_the_files(two):
    with copy_of(two) as folder:
        late = folder / "step-000000200"
        digest = store_in(folder).newest().digest
        late.rename(folder / ".hidden")
        timer = threading.Timer(0.3, (folder / ".hidden").rename, [late])
        timer.start()
        assert store_in(folder).wait_for(200, digest, 30).step == 200
        timer.join()


@pytest.mark.parametrize("lag", ["missing", "old", "short", "folder"])
def test_another_rank_that_never_sees_them_says_so(two, lag):
    with copy_of(two) as folder:
        digest = store_in(folder).newest().digest
        if lag == "missing":
            shutil.rmtree(folder / "step-000000200")
        elif lag == "short":
            (folder / "step-000000200" / "model.pt").write_bytes(b"")
        elif lag == "folder":
            shutil.rmtree(folder)
        else:
            digest = "0" * 64
        with pytest.raises(PeerError, match="this node does not see .*step-000000200 as rank 0 does after 0.2 s"):
            store_in(folder).wait_for(200, digest, 0.2)


def test_a_runs_identity_is_made_once(tmp_path):
    first = ensure_identity(tmp_path)
    assert re.fullmatch("[0-9a-f]{32}", first)
    assert ensure_identity(tmp_path) == first and [path.name for path in tmp_path.iterdir()] == ["identity"]


def test_two_who_make_an_identity_agree(tmp_path):
    assert ownership.create_exclusively(tmp_path / "identity", "a" * 32)
    assert not ownership.create_exclusively(tmp_path / "identity", "b" * 32)
    assert ensure_identity(tmp_path) == "a" * 32 and [path.name for path in tmp_path.iterdir()] == ["identity"]


@pytest.mark.parametrize("content", ["", "abc", "g" * 32])
def test_an_identity_that_is_none_is_refused(tmp_path, content):
    (tmp_path / "identity").write_text(content)
    with pytest.raises(RankError, match="not 32 hexadecimal digits; put back the identity that the newest"):
        ensure_identity(tmp_path)

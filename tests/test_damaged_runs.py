"""No record in a run's folder stops a view, makes it wait, or hides another run.

Files of recorded runs are damaged in ways that a seed chooses, and each view is asked. `make soak` plays more seeds.
"""

import contextlib
import json
import os
import random
import shutil
import signal
import socket
import sys
from pathlib import Path

import pytest
from command_line import typed

from slurmddp.cli.watch.sources import query, read_files
from slurmddp.errors import UsageError

RECORDED = Path(__file__).parent / "runs" / "recorded" / "before"
HOME, PYTHON = "/home/me/my-project", "/home/me/src/.venv/bin/python"
RUNS = ("done", "failed", "killed", "preempted", "fenced", "here", "setup", "sweep", "cancelled")
SEEDS_OF_A_TEST = 10
OFTEN, ALL = 40, 200
"""Tests in each run, and in a soak."""
SLOW_S = 20
LONGEST = 500_000
"""Characters that a view may print; `logs` prints what the files have."""
LONGEST_LOG = 20_000_000
STATUSES = (0, 1, 2, 3)

STRANGE = (
    None, True, -1, 0, 10**400, 1e308, -1e308, 1e-320, 2**63, float("nan"), float("inf"), "", "x" * 70_000, [], {},
    [[]], [None], {"a": {"b": []}}, "../../../etc/passwd", "/dev/zero", "a\0b", "\ud800", "\x1b[31m\x07", "\n\r", "5",
    "-", "nan", "9" * 5000, "{}", "%s{0}", [1] * 70_000, {"\0": 1}, "2026-13-45T99:99:99", "0001-01-01T00:00:00+23:59",
    "\u0663", "\u00b2",
)  # fmt: skip
DEEP = "[" * 10_000 + "]" * 10_000


def views(run: str, seed: int) -> list[tuple[str, ...]]:
    """Return what is asked with a seed: of commands with two forms each with every other one."""
    odd = [
        ("status", run), ("status", "--json"), ("logs", "--all", run), ("diagnose", run), ("report", "--json", run),
        ("compare", run), ("render", f"jobs/{run}/spec.toml"), ("submit", "--name", run, "train.py"),
    ]  # fmt: skip
    even = [
        ("status", "--json", run), ("logs", "--errors", run), ("diagnose", "--json", run), ("diagnose",),
        ("report", run), ("compare", run, "ok"), ("render", "--name", run, "train.py"),
        ("submit", f"jobs/{run}/spec.toml"), ("config", f"jobs/{run}/spec.toml"),
    ]  # fmt: skip
    always = [("status",), ("logs", "-n", "5", run), ("watch", run), ("sweep", "results", "sweep")]
    return [*always, *(odd if seed % 2 else even)]


def damage_bytes(content: bytes, rng: random.Random) -> bytes:
    at, lines = rng.randrange(len(content) + 1), content.split(b"\n")
    part = rng.choice([
        b"\0" * 4096, b"\xff\xfe\x80", b"\n" * 5000, b"\r" * 5000, DEEP.encode(), b"x" * 5_000_000, b"9" * 10_000,
        b'{"time": ', b"\x1b]0;title\x07\x1b[2J", "\u202e\u2028".encode(), b"{}\n" * 50_000,
    ])  # fmt: skip
    return rng.choice([
        content[:at], content[at:], content[:at] + part + content[at:], part, b"", content * 200, rng.randbytes(3000),
        bytes(byte ^ (rng.random() < 0.02) for byte in content), content.replace(b"\n", b"\r\n"), content.upper(),
        content.rstrip(b"\n"), b"\n".join(rng.sample(lines, len(lines))),
    ])  # fmt: skip


def damage_record(line: bytes, rng: random.Random) -> bytes:
    record = json.loads(line)
    inner = rng.choice([record, *(value for value in record.values() if isinstance(value, dict))])
    key = rng.choice([*inner, "extra"])
    if rng.random() < 0.2:
        inner.pop(key, None)
    else:
        inner[key] = rng.choice(STRANGE)
    if rng.random() < 0.05:
        return json.dumps(record)[:-1].encode() + f', "deep": {DEEP}}}'.encode()
    return json.dumps(record).encode()


def damage_lines(content: bytes, rng: random.Random) -> bytes:
    """Change a record, or the same key of all."""
    lines, state = [line for line in content.split(b"\n") if line], rng.getstate()
    for at in range(len(lines)) if rng.random() < 0.3 else [rng.randrange(len(lines))]:
        rng.setstate(state)
        lines[at] = damage_record(lines[at], rng)
    return b"\n".join(lines) + b"\n"


def damage_toml(content: bytes, rng: random.Random) -> bytes:
    lines = content.decode().splitlines()
    at = rng.choice([at for at, line in enumerate(lines) if " = " in line])
    key = lines[at].partition(" = ")[0]
    value = rng.choice([
        "true", "-1", "1e400", "nan", "9" * 5000, '""', "[]", "{}", DEEP, '"../../x"', r'"\u0000"', r'"\u001B[2J"',
        f'"{"x" * 70_000}"', "1979-05-27T07:32:00Z", "[[1]]", "{a = 1}", '["a", 1]', "0x10", "",
    ])  # fmt: skip
    lines[at : at + 1] = rng.choice([[f"{key} = {value}"], [], [lines[at]] * 2, [f"{key}.x = {value}"]])
    return "\n".join(lines).encode()


def replace_path(path: Path, rng: random.Random) -> None:
    """Put what is no such file in the place of a file or folder."""
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    target = rng.choice(["/dev/zero", "/dev/full", "/dev/tty", path.name, "..", "/proc/self/environ", "/nowhere"])
    make = rng.choice([Path.mkdir, os.mkfifo, make_hole, make_socket, lambda _: None])
    if rng.random() < 0.5:
        path.symlink_to(target)
    else:
        make(path)


def make_hole(path: Path) -> None:
    path.touch()
    os.truncate(path, 10**11)


def make_socket(path: Path) -> None:
    folder = os.open(path.parent, os.O_PATH)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(f"/proc/self/fd/{folder}/{path.name}")
    os.close(folder)


def damage(run: Path, rng: random.Random) -> str:
    found = sorted(run.rglob("*"))
    paths = [path for path in found if not path.is_dir() or path.is_symlink() or rng.random() < 0.2]
    path, kind = rng.choice(paths or [run]), rng.random()
    if kind < 0.2 or not path.is_file() or path.is_symlink() or path.stat().st_size > LONGEST_LOG:
        replace_path(path, rng)
        return f"{path.relative_to(run)} is another kind of file"
    content = path.read_bytes()
    change = {".json": damage_lines, ".jsonl": damage_lines, ".toml": damage_toml}.get(path.suffix, damage_bytes)
    try:
        path.write_bytes(change(content, rng) if kind < 0.7 else damage_bytes(content, rng))
    except (ValueError, IndexError, RecursionError):  # it has been damaged before
        path.write_bytes(damage_bytes(content, rng))
    return f"{path.relative_to(run)} is damaged"


def rename_attempt(run: Path, rng: random.Random) -> str:
    path = rng.choice(sorted(run.glob("**/logs/*/*")))
    name = rng.choice(["9" * 200 + ".0", "0.0\n", "-1.0", "٣.0", "0.0.0", "007.0", "0." + "9" * 200])
    path.rename(path.with_name(name))
    return f"{path.relative_to(run)} has the name {name[:10]!r}"


def listing(folder: Path) -> list[tuple[str, int, int]]:
    found = [(path, path.lstat()) for path in sorted(folder.rglob("*"))]
    return [(str(path), info.st_size, info.st_mtime_ns) for path, info in found]


def late(*_):
    raise TimeoutError(f"a view took more than {SLOW_S} s")


@pytest.fixture(scope="module")
def template(tmp_path_factory):
    folder = tmp_path_factory.mktemp("template") / "jobs"
    shutil.copytree(RECORDED, folder)
    shutil.copytree(folder / "done", folder / "ok")
    return folder


@pytest.fixture
def on_time():
    before = signal.signal(signal.SIGALRM, late)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def make_damaged(template: Path, here: Path, seed: int) -> tuple[str, str]:
    """Make a folder of runs, one of them damaged and one not; return the name of the first, and its damage in words."""
    rng = random.Random(seed)  # noqa: S311 - no secret
    name = rng.choice(RUNS)
    for copied in (name, "ok"):
        shutil.copytree(template / copied, here / "jobs" / copied)
    (here / "train.py").touch()
    for path in [*here.rglob("submissions.jsonl"), *here.rglob("spec.toml")]:
        path.write_text(path.read_text().replace(PYTHON, sys.executable).replace(HOME, str(here)))
    run = here / "jobs" / name
    said = [damage(run, rng) for _ in range(rng.choice([1, 1, 1, 2, 4]))]
    if rng.random() < 0.05 and [*run.glob("**/logs/*/*")]:
        said.append(rename_attempt(run, rng))
    return name, "; ".join(said)


def ask(words: tuple[str, ...], here: Path) -> None:
    """Ask a view, and check its answer."""
    signal.alarm(SLOW_S)
    if words[0] == "watch":
        with contextlib.chdir(here), contextlib.suppress(UsageError):
            for job in query(words[1:], "jobs", {"PATH": "/nowhere"}):
                read_files(job, 0)
        return
    done = typed(*words, cwd=here)
    assert done.returncode in STATUSES, done.stderr
    assert len(done.stdout) + len(done.stderr) < (LONGEST_LOG if words[0] == "logs" else LONGEST)
    assert done.returncode == 0 or done.stderr or done.stdout
    if words == ("status",):
        assert "\nok " in done.stdout


@pytest.mark.usefixtures("on_time")
@pytest.mark.parametrize(
    "block", [pytest.param(at, marks=pytest.mark.soak) if at >= OFTEN else at for at in range(ALL)]
)
def test_no_record_stops_a_view(block, template, tmp_path):
    for seed in range(block * SEEDS_OF_A_TEST, (block + 1) * SEEDS_OF_A_TEST):
        here = tmp_path / str(seed)
        run, said = make_damaged(template, here, seed)
        before = listing(here / "jobs")
        for words in views(run, seed):
            try:
                ask(words, here)
                if words == ("report", run):  # it writes its page
                    before = listing(here / "jobs")
                assert listing(here / "jobs") == before, "something was written"
            except BaseException as error:
                error.add_note(f"seed {seed}: slurmddp {' '.join(words)}; {run}: {said}")
                raise
        shutil.rmtree(here)


def test_a_report_of_a_job_file_with_thousands_of_brackets(template, tmp_path):
    shutil.copytree(template / "failed", tmp_path / "jobs" / "failed")
    (tmp_path / "jobs" / "failed" / "spec.toml").write_text(f"nodes = {DEEP}")
    done = typed("report", "--json", "failed", cwd=tmp_path)
    assert done.returncode == 0 and json.loads(done.stdout)["outcome"] == "failed"


@pytest.mark.usefixtures("on_time")
def test_logs_of_a_hundred_gigabytes_that_are_holes(template, tmp_path):
    """As of a log that was truncated while its writer kept its place."""
    shutil.copytree(template / "failed", tmp_path / "jobs" / "failed")
    logs = [path for path in tmp_path.rglob("*.out") if "node" not in path.name]
    for path in logs:
        whole = path.read_bytes()
        os.truncate(path, 10**11)
        with path.open("ab") as file:
            file.write(b"\n" + whole)
    signal.alarm(SLOW_S)
    shown = typed("logs", "-n", "3", "failed", cwd=tmp_path).stdout.splitlines()
    before = typed("logs", "-n", "3", "failed", cwd=template.parent).stdout.splitlines()
    assert shown == before and len(shown) == 3
    found = typed("diagnose", "failed", cwd=tmp_path).stdout
    assert "FAILED: the program raised" in found and "[exception]" in found
    assert typed("status", "failed", cwd=tmp_path).returncode == 1
    printed = typed("logs", "--all", "failed", cwd=tmp_path).stdout
    assert printed.splitlines()[-1].endswith(shown[-1]) and len(printed) < LONGEST_LOG

"""What is said of facts that do not fit together, and what a rank knows of itself."""

import dataclasses
import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from ranks import make_rank

from slurmddp.runs.files import read_records
from slurmddp.runs.layout import RunDir
from slurmddp.runtime.health import check, network, preflight, rules
from slurmddp.runtime.health import facts as looking
from slurmddp.runtime.health.check import _judge_facts
from slurmddp.runtime.health.facts import SHM, Facts, digest, gather_facts, versions
from slurmddp.runtime.health.preflight import Preflight
from slurmddp.runtime.health.rules import judge, judge_clocks, judge_marks
from slurmddp.worker import entry


def test_each_finding_has_a_level_and_a_check_that_uses_it():
    used = "".join(path.read_text() for path in Path(rules.__file__).parent.glob("*.py"))
    for check_name, cases in rules.CATALOGUE.texts.items():
        for case, texts in cases.items():
            assert texts["level"] in ("ok", "note", "warning", "error") and texts["what"], (check_name, case)
            assert f'finding("{check_name}", "{case}"' in used, (check_name, case)


def facts(rank: int, **changes) -> Facts:
    """Return a healthy rank: two a node, four CPUs each of eight, two GPUs a node."""
    well = {
        "rank": rank,
        "local_rank": rank % 2,
        "node_rank": rank // 2,
        "world_size": 4,
        "host": f"n{rank // 2 + 1}",
        "pid": 100 + rank,
        "versions": {"torch": "2.13.0"},
        "script": "train.py",
        "digest": "abc",
        "gpus": ["GPU-a", "GPU-b"],
        "gpus_asked": True,
        "cpus": list(range(4 * (rank % 2), 4 * (rank % 2) + 4)),
        "cpus_wanted": 4,
        "cpus_of_node": 8,
        "shm_mb": 8000,
    }
    return Facts(**(well | changes))


def four(*numbers: int, **changes) -> list[Facts]:
    """Return four ranks on two nodes, those of `numbers` with changes."""
    return [facts(rank, **(changes if rank in numbers else {})) for rank in range(4)]


def said(ranks) -> list[tuple[str, str, str, str]]:
    return [(found.check, found.level, found.place, found.what) for found in judge(ranks)]


@pytest.mark.parametrize(
    ("ranks", "finding"),
    [
        (four(2, folder_error="EROFS"), ("folder", "error", "n2", "the run's folder cannot be written to (EROFS)")),
        (four(2, folder_error="ENOSPC"), ("folder", "warning", "n2", "the run's folder cannot be written to (ENOSPC)")),
        (four(2, folder_error="ESTALE"), ("folder", "warning", "n2", "the run's folder cannot be written to (ESTALE)")),
        (
            four(2, head="n1"),
            ("names", "warning", "n2", "the name of the first node, n1, does not resolve, or only to n2 itself"),
        ),
        (
            four(2, 3, failure="E: x", cpus=[]),
            ("preflight", "warning", "n2", "the check of the ranks failed (E: x)"),
        ),
        (
            four(2, 3, versions={"torch": "2.4.0"}),
            ("versions", "warning", "n2", "torch differs: 2.13.0 on ranks 0, 1 on n1, 2.4.0 on ranks 2, 3 on n2"),
        ),
        (four(3, digest="missing"), ("script", "error", "n2", "train.py cannot be read by rank 3 on n2")),
        (
            four(1, 3, digest="missing"),
            ("script", "error", "", "train.py cannot be read by ranks 1 on n1, 3 on n2"),
        ),
        (
            four(3, digest="fff"),
            (
                "script",
                "warning",
                "n2",
                "train.py differs: abc on ranks 0, 1 on n1, 2 on n2, fff on rank 3 on n2 (sha256)",
            ),
        ),
        (four(2, 3, gpus=["GPU-a"]), ("gpus", "warning", "n2", "ranks 2, 3 share 1 GPU: GPU-a")),
        (
            [*four()[:2], facts(2, gpus=["GPU-a"]), facts(3, gpus=["GPU-b"])],
            ("gpus", "warning", "n2", "its 2 ranks see 1 GPU each"),
        ),
        (four(2, 3, gpus=["GPU-a", "GPU-b", "GPU-c"]), ("gpus", "note", "n2", "3 GPUs for 2 ranks")),
        (four(3, cpus=[7]), ("affinity", "warning", "n2", "its 2 ranks may run on 5 CPUs of the 8 asked for")),
        (four(2, 3, cpus=[4]), ("affinity", "warning", "n2", "its 2 ranks may run on 1 CPU of the 8 asked for")),
        (
            four(3, cpus=[0, 1, 2, 3]),
            ("affinity", "warning", "n2", "its 2 ranks may run on 4 CPUs of the 8 asked for"),
        ),
        (four(2, shm_mb=64), ("shm", "warning", "n2", f"{SHM} has 64 MB")),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_what_does_not_fit_is_named_with_its_host(ranks, finding):
    assert said(ranks) == [finding]


@pytest.mark.parametrize(
    "ranks",
    [
        four(),
        four(0, 1, 2, 3, cpus=[0, 1], cpus_of_node=0),
        four(2, 3, cpus=list(range(8))),
        four(0, 1, 2, 3, digest="missing"),
        four(3, digest=""),
        four(0, 1, 2, 3, gpus=["GPU-a"], gpus_asked=False),
    ],
    ids=[
        "healthy",
        "Slurm has more CPUs",
        "one mask",
        "no script",
        "a script that cannot be read",
        "no GPUs asked for",
    ],
)
def test_what_may_be_meant_or_python_says_itself_gives_no_finding(ranks):
    assert said(ranks) == []


def test_a_mark_that_is_not_seen_names_its_node():
    (found,) = judge_marks(four(), lambda node: node == 0, "warning")
    assert (found.host, found.level) == ("n2", "warning")
    assert list(judge_marks(four(2, folder_error="EROFS"), lambda node: node == 0, "warning")) == []


@pytest.mark.parametrize(
    ("time_s", "words"), [(90.0, "10.0 s behind the first node's"), (105.0, "4.5 s ahead of the first node's")]
)
def test_a_clock_that_is_off_is_named(time_s, words):
    (found,) = judge_clocks(100.0, 100.5, [("n1", 100.2), ("n2", time_s)])
    assert (found.host, found.what) == ("n2", f"its clock is {words}")
    assert list(judge_clocks(100.0, 100.5, [("n2", 100.9)])) == []


@pytest.mark.parametrize(
    ("wanted", "seen", "without_driver"),
    [
        (None, ["GPU-1a", "GPU-2b"], []),
        ("", [], []),
        ("1,0", ["GPU-2b", "GPU-1a"], ["1", "0"]),
        ("1,7,0", ["GPU-2b"], ["1", "7", "0"]),
        ("GPU-2", ["GPU-2b"], ["GPU-2"]),
        ("MIG-5", ["MIG-5"], ["MIG-5"]),
        ("GPU-9", [], ["GPU-9"]),
    ],
)
def test_visible_gpus_are_told_as_cuda_reads_its_variable(wanted, seen, without_driver):
    assert looking.select_visible(["GPU-1a", "GPU-2b"], wanted) == seen
    assert looking.select_visible([], wanted) == without_driver


@pytest.fixture
def rank(tmp_path):
    run = RunDir(tmp_path / "run")
    run.attempt("17", "0.0").mkdir(parents=True)
    return make_rank(run_dir=run, job="17", attempt="0.0", master_addr="n1")


def test_a_rank_knows_its_versions_cpus_script_and_folder(rank, tmp_path):
    script = tmp_path / "train.py"
    script.write_text("pass")
    found = gather_facts(rank, [str(script), "--lr", "1"], {"SLURM_CPUS_PER_TASK": "2", "CUDA_VISIBLE_DEVICES": "3"})
    assert found.versions["python"] == ".".join(map(str, sys.version_info[:3]))
    assert found.cpus == sorted(os.sched_getaffinity(0))
    assert (found.cpus_wanted, found.folder_error, found.gpus_asked) == (2, "", False)
    assert found.script == str(script) and found.digest == digest(str(script)) not in ("", "missing")
    assert Facts(**json.loads(json.dumps(dataclasses.asdict(found)))) == found
    assert digest(str(tmp_path / "none.py")) == "missing"
    assert digest(str(script / "beneath")) == ""


def test_only_a_script_has_a_digest(rank):
    for words in (["-m", "pkg"], ["--epochs", "2"], ["--no-python", "./a"], []):
        found = gather_facts(rank, words, {"SLURM_GPUS_ON_NODE": "2"})
        assert (found.script, found.digest, found.gpus_asked) == ("", "", True)


@pytest.fixture
def new_versions():
    """Let the versions be read anew, before and after a test that changes them."""
    versions.cache_clear()
    yield
    versions.cache_clear()


@pytest.mark.usefixtures("new_versions")
def test_a_torch_whose_package_is_another_is_told_with_both(monkeypatch, tmp_path):
    (tmp_path / "torch-9.9.9.dist-info").mkdir()
    (tmp_path / "torch-9.9.9.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 9.9.9\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert versions()["torch"] == f"{torch.__version__} (package: 9.9.9)"


def test_alone_a_rank_that_cannot_write_is_refused_and_says_so(rank, capsys):
    preflight = Preflight(rank, [], {})
    error = preflight.judge([dataclasses.replace(preflight.facts, folder_error="EROFS", shm_mb=10)])
    assert error is not None and "n1: the run's folder cannot be written to (EROFS)" in str(error)
    assert "--no-preflight" in str(error)
    printed = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in printed] == ["ERROR", "WARNING"]
    events = list(read_records(rank.run_dir.events))
    assert [(event["event"], event["check"], event["on_host"]) for event in events] == [
        ("finding", "folder", "n1"),
        ("finding", "shm", "n1"),
    ]


def test_a_healthy_rank_alone_leaves_nothing(rank, capsys):
    preflight = Preflight(rank, [], {"CUDA_VISIBLE_DEVICES": "0"})
    assert preflight.judge([preflight.facts]) is None
    assert capsys.readouterr().out == ""
    assert list(rank.run_dir.attempt("17", "0.0").iterdir()) == []


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 8])
def test_each_node_exchanges_with_both_neighbours_and_no_node_twice_in_a_round(count):
    rounds = check.ring_rounds(count)
    ring = {tuple(sorted((node, (node + 1) % count))) for node in range(count)} - {(0, 0)}
    assert sorted(link for links in rounds for link in links) == sorted(ring)
    assert all(len({node for link in links for node in link}) == 2 * len(links) for links in rounds)


def test_a_node_with_slow_links_to_both_neighbours_is_named_among_four():
    links = [("n1", "n2", 0.1), ("n2", "n3", 0.1), ("n3", "n4", 0.01), ("n1", "n4", 0.01)]
    found = check.judge_links(links, 10**8)
    assert [(each.level, each.host) for each in found] == [("warning", "n1"), ("warning", "n2")]


def test_a_rank_that_computes_slowly_is_named_with_its_host():
    (found,) = check.judge_products([(0, "n1", 0.010), (1, "n1", 0.011), (2, "n2", 0.030), (3, "n2", 0.010)])
    assert (found.level, found.place) == ("warning", "rank 2 on n2")
    assert found.what == "a matrix product takes 30.00 ms, the median is 10.50 ms"
    (well,) = check.judge_products([(0, "n1", 0.010), (1, "n1", 0.012)])
    assert well.level == "ok"


def test_a_bad_link_is_named_by_both_hosts():
    (found,) = check.judge_links([("n1", "n2", 0.01), ("n1", "n3", 0.1), ("n2", "n3", 0.01)], 10**8)
    assert (found.host, found.level) == ("n1", "warning")
    assert found.what == "exchanges 1.00 GB/s with n3, in the median 10.00"
    (well,) = check.judge_links([("n1", "n2", 0.1)], 10**8)
    assert (well.level, well.what) == ("ok", "neighbouring nodes exchange 1.00 to 1.00 GB/s, each way")


def test_ports_and_names_are_told_for_each_way():
    target = "10.0.0.1 port 20002"
    well = {"host": "n1", "other": "n2", "addresses": ["10.0.0.1"], "target": target, "why": ""}
    deaf = {"host": "n2", "other": "n1", "addresses": [], "target": target, "why": "no answer"}
    found = list(network.judge_ports([well, deaf]))
    assert [(each.check, each.level, each.host, each.what) for each in found] == [
        ("names", "warning", "n2", "the name n1 does not resolve"),
        ("ports", "error", "n2", "n1 (10.0.0.1 port 20002) cannot be reached: no answer"),
    ]


def test_ranks_that_get_no_notice_are_named():
    (found,) = check._judge_signals("", [(0, "n1", 0.1), (1, "n2", None)])
    assert (found.level, found.place) == ("warning", "rank 1 on n2")
    (well,) = check._judge_signals("", [(0, "n1", 0.1), (1, "n2", 0.25)])
    assert well.what == "the stop signal reaches all ranks within 0.25 s"
    (untried,) = check._judge_signals("no scancel here", [(0, "n1", None)])
    assert untried.level == "note"


SIGNAL_AT_EACH_LINE = """
import signal, sys
from types import SimpleNamespace
from slurmddp.runtime.health import check

alone = SimpleNamespace(
    share=lambda topic: [], broadcast=lambda topic, value: value, gather=lambda topic, value: [value]
)

def check_signals(last):
    lines = iter(range(last + 1))
    def trace(*_):
        if next(lines, -1) == last:
            signal.raise_signal(signal.SIGUSR2)
        return trace
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    sys.settrace(trace)
    found = check.check_signals(SimpleNamespace(rank=0, host="n1", is_main=True), alone)
    sys.settrace(None)
    return found[0].level if found else None

check._send, check.REACH_LIMIT_S = lambda rank: "", 0.05
levels = [check_signals(last) for last in range(150)]
print(*sorted(set(levels)))
"""


def test_a_signal_may_come_at_any_instant_of_the_wait_for_it():
    words = [sys.executable, "-c", SIGNAL_AT_EACH_LINE]
    done = subprocess.run(words, timeout=60, check=True, capture_output=True, text=True)
    assert done.stdout == "ok warning\n", "a warning where it came before the check"


def test_slurm_is_told_to_signal_the_step_or_why_not_is_said(rank, tmp_path, monkeypatch):
    """The program scancel is a stand-in here: a real one would signal the step that the test is not in."""
    for name, value in {"PATH": str(tmp_path), "SLURM_JOB_ID": "17", "SLURM_STEP_ID": "3"}.items():
        monkeypatch.setenv(name, value)
    assert check._send(rank) == "scancel was not found"
    program = tmp_path / "scancel"
    program.write_text(
        f'#!/bin/sh\necho "$*" >{tmp_path}/asked\n[ ! -e {tmp_path}/refuse ] || {{ echo no >&2; exit 1; }}\n'
    )
    program.chmod(0o755)
    assert check._send(rank) == ""
    assert (tmp_path / "asked").read_text() == "--signal=USR2 17.3\n"
    (tmp_path / "refuse").touch()
    assert check._send(rank) == "no"


def test_good_facts_are_told_too(rank):
    sent = [dataclasses.asdict(each) for each in four()]
    for node in range(2):
        rank.run_dir.node_mark("17", "0.0", node).touch()
    checks = {found.check: found.level for found in _judge_facts(rank, sent)}
    assert checks == {"folder": "ok", "versions": "ok", "gpus": "ok", "affinity": "ok", "shm": "ok"}
    assert _judge_facts(rank, []) == []


def test_a_node_whose_mark_is_not_seen_on_the_first_is_named(rank, monkeypatch):
    monkeypatch.setattr(check, "SHARED_LIMIT_S", 0.0)
    rank.run_dir.node_mark("17", "0.0", 0).touch()
    found = _judge_facts(rank, [dataclasses.asdict(each) for each in four()])
    (folder,) = [each for each in found if each.check == "folder"]
    assert (folder.level, folder.host) == ("error", "n2")


@pytest.mark.usefixtures("new_versions")
def test_a_torch_without_nccl_says_none(monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.delattr(torch._C, "_nccl_version", raising=False)
    assert "NCCL" not in versions()


def test_a_look_that_fails_is_a_warning(rank, monkeypatch, capsys):
    def fail():
        raise AttributeError("no such thing")

    monkeypatch.setattr(looking, "versions", fail)
    look = Preflight(rank, [], {})
    assert look.judge([look.facts]) is None
    assert (
        "WARNING: rank 0 on n1: the check of the ranks failed (AttributeError: no such thing)"
        in capsys.readouterr().out
    )


def test_facts_that_cannot_be_judged_end_no_job(rank, capsys):
    assert Preflight(rank, [], {}).judge([facts(0, cpus=7)]) is None
    assert "WARNING" in capsys.readouterr().out


def test_a_mark_that_cannot_be_looked_at_is_not_seen(rank, monkeypatch, capsys):
    def stale(*_, **__):
        raise OSError(errno.ESTALE, "Stale file handle")

    look = Preflight(rank, [], {})
    monkeypatch.setattr(preflight, "SEEN_LIMIT_S", 0.0)
    monkeypatch.setattr(os, "stat", stale)
    assert look.judge([look.facts]) is None
    assert "n1: what it wrote into the run's folder is not seen on n1" in capsys.readouterr().out


def test_the_first_nodes_name_is_not_looked_up_again(rank, monkeypatch):
    """What leads there was found out before: the name, or Slurm's address where the name does not."""
    monkeypatch.setattr("socket.getaddrinfo", lambda *_, **__: pytest.fail("a second lookup"))
    environ = {"SLURMDDP_HEAD_NODE_ADDR": "10.0.0.1"}
    heads = {}
    for address in ("n1", "10.0.0.1", "n1-ib0"):
        changes = {"rank": 1, "world_size": 2, "node_rank": 1, "hosts": ("n1", "n2"), "master_addr": address}
        heads[address] = gather_facts(dataclasses.replace(rank, **changes), [], environ).head
    assert heads == {"n1": "", "10.0.0.1": "n1", "n1-ib0": ""}


def test_with_a_copy_of_the_code_its_script_is_looked_at(rank, tmp_path, monkeypatch):
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "train.py").write_text("pass")
    monkeypatch.setenv("SLURMDDP_CODE", str(tmp_path / "copy"))
    monkeypatch.setenv("SLURMDDP_CODE_ORIGIN", str(tmp_path / "live"))
    look = entry._preflight(rank, [str(tmp_path / "live" / "train.py"), "--lr", "1"])
    assert look.facts.digest == digest(str(tmp_path / "copy" / "train.py"))

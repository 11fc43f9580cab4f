"""What an attempt shows of its nodes: a fault of one speaks against it alone, a fault of the program against none."""

import time

import pytest
from event_lines import event, write

from slurmddp.diagnose import node_faults
from slurmddp.diagnose.node_faults import evidence_of, read_facts
from slurmddp.runs.layout import RunDir
from slurmddp.runs.node_evidence import HINT, PROOF
from slurmddp.runs.node_store import read_evidence

HOSTS = ("n1", "n2", "n3")
LOST = "lost rank 2: Connection closed by peer [10.0.0.3]:41003"
NCCL = "NCCL WARN NET/IB : Got completion from peer {}<44206> with status=12 opcode=129 len=65536 vendor err 129 (Recv)"
XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=4711, GPU has fallen off the bus."
ERROR = "Traceback (most recent call last):\n  File 'train.py', line 3, in <module>\n{}"


def make(tmp_path, records, outputs=(), *, status=76, log="", events=(), hosts=HOSTS):
    """Leave an attempt of a rank a node: the records and the outputs of its ranks, and what srun said."""
    run = RunDir(tmp_path / "jobs" / "r")
    run.create()
    run.attempt("7", "0.0").mkdir(parents=True)
    for rank, text in dict(outputs).items():
        run.rank_log("7", "0.0", rank).write_text(f"epoch 1\n{text}\n")
    for rank, (number, reason) in dict(records).items():
        run.rank_record("7", "0.0", rank).write_text(f"{number} rank {rank} on {hosts[rank]}: {reason}\n")
    run.batch_log("7").write_text(log)
    start = event("attempt_start", 1.0, nodes=",".join(hosts), log_offset=0, rank=None)
    write(run, start, *events, event("attempt_end", 100.0, status=status, reason="x", rank=None))
    return run


def shown(run):
    return [(one.node, one.strength) for one in evidence_of(read_facts(run, "c", "7", "0.0"))]


PEERS = {0: (76, LOST), 1: (76, LOST)}
FAULTS = {
    "Xid": ({**PEERS, 2: (77, "exit status 1")}, {2: XID}, [("n3", PROOF)]),
    "ECC": ({**PEERS, 2: (76, "RuntimeError: CUDA error: uncorrectable ECC error encountered")}, {}, [("n3", PROOF)]),
    "network card": (
        {**PEERS, 2: (77, "exit status 1")},
        {2: "n3:1:2 [0] p2p_plugin.c:141 NCCL WARN NET/IB : Got async event : port error"},
        [("n3", PROOF)],
    ),
    "one end of two connections": (
        dict.fromkeys(range(3), (76, "torch.distributed.DistBackendError: NCCL error: remote process exited")),
        {0: NCCL.format("10.0.0.3"), 1: NCCL.format("10.0.0.3"), 2: NCCL.format("10.0.0.1")},
        [("n3", PROOF)],
    ),
    "a connection whose peer has no known address": (
        dict.fromkeys(range(3), (76, "torch.distributed.DistBackendError: NCCL error: remote process exited")),
        {0: NCCL.format("10.9.9.9"), 1: NCCL.format("10.9.9.9"), 2: "bye"},
        [("n3", PROOF)],
    ),
    "a single connection": (
        dict.fromkeys(range(3), (76, "torch.distributed.DistBackendError: NCCL error: remote process exited")),
        {0: NCCL.format("10.0.0.3"), 2: NCCL.format("10.0.0.1")},
        [("n1", HINT), ("n3", HINT)],
    ),
    "Xid of a program's own access": (
        {**PEERS, 2: (77, "exit status 1")},
        {2: "NVRM: Xid (PCI:0000:00:06): 31, pid=79749, name=exe, Ch 0000000a, intr 00000000. MMU Fault: ENGINE"},
        [("n3", HINT)],
    ),
}


@pytest.fixture(autouse=True)
def addresses(monkeypatch):
    known = {host: [(None, None, None, None, (f"10.0.0.{host[1:]}", 0))] for host in HOSTS}
    monkeypatch.setattr(node_faults.socket, "getaddrinfo", lambda host, _: known[host])


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_a_node_speaks_against_this_node(tmp_path, name):
    records, outputs, expected = FAULTS[name]
    assert shown(make(tmp_path, records, outputs)) == expected


OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 79 GiB"
WATCHDOG = (
    "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=42, OpType=ALLREDUCE, "
    "Timeout(ms)=600000) ran for 600029 milliseconds before timing out."
)
DECOYS = {
    "the program's exception on one node": ({**PEERS, 2: (77, "ValueError: loss is nan")}, {}),
    "an exception while its peers lose the connection": (
        {0: (76, LOST), 1: (76, LOST), 2: (77, "KeyError: 'labels'")},
        {0: NCCL.format("10.0.0.3"), 1: NCCL.format("10.0.0.3")},
    ),
    "a full shared disk": ({**PEERS, 2: (77, "OSError: [Errno 28] No space left on device: 'out/a.pt'")}, {}),
    "out of memory by its own batch size": ({**PEERS, 2: (77, OOM)}, {}),
    "a time-out in which all take part": (
        dict.fromkeys(range(3), (76, "torch.distributed.DistBackendError: NCCL error")),
        dict.fromkeys(range(3), WATCHDOG),
    ),
    "the same error of CUDA on all nodes": (
        dict.fromkeys(range(3), (76, "RuntimeError: CUDA error: uncorrectable ECC error encountered")),
        {},
    ),
    "a program that ended by itself": ({**PEERS, 2: (77, "exit status 3")}, {}),
    "a port that is taken": ({0: (76, "port 29500 on n1 is taken by another process")}, {}),
    "a package that is missing": ({**PEERS, 2: (77, "ModuleNotFoundError: No module named 'apex'")}, {}),
    "ranks that were killed": ({}, {}),
    "lost peers and no cause": (dict.fromkeys(range(3), (76, LOST)), {}),
}


@pytest.mark.parametrize("name", DECOYS)
def test_a_fault_of_the_program_speaks_against_no_node(tmp_path, name):
    records, outputs = DECOYS[name]
    log = "srun: error: n3: task 2: Killed\n" if not records else ""
    assert shown(make(tmp_path, records, outputs, log=log)) == []


def test_a_crash_of_a_native_library_is_no_more_than_a_hint(tmp_path):
    run = make(tmp_path, PEERS, {2: "x"}, log="srun: error: n3: task 2: Segmentation fault (core dumped)\n")
    assert shown(run) == [("n3", HINT)]


def test_a_healthy_run_with_warnings_speaks_against_no_node(tmp_path):
    warnings = {2: f"WARNING: {XID}", 0: NCCL.format("10.0.0.3")}
    found = event("finding", 2.0, check="shm", level="warning", on_host="n3", what="it has 64 MB", advice="")
    assert shown(make(tmp_path, {}, warnings, status=0, events=[found])) == []


def test_a_slow_rank_is_a_hint_also_in_a_run_that_ended_well(tmp_path):
    slow = {"slow_rank": 2, "slow_host": "n3", "others_s": 0.05}
    events = [event("straggler", 5.0, **slow, backward_s=0.2), event("straggler", 50.0, **slow, backward_s=0.3)]
    (one,) = evidence_of(read_facts(make(tmp_path, {}, status=0, events=events), "c", "7", "0.0"))
    assert one.what == "rank 2 was slow: its backward took 300 ms, others 50 ms"
    assert (one.node, one.strength, one.source, one.rank, one.time) == ("n3", HINT, "straggler", 2, 50.0)


@pytest.mark.parametrize(
    ("hosts", "expected"), [(["n3"], [("n3", PROOF)]), (["n3", "n3"], [("n3", PROOF)]), (["n2", "n3"], []), ([""], [])]
)
def test_a_check_that_failed_on_one_node_speaks_against_it(tmp_path, hosts, expected):
    found = {"check": "folder", "level": "error", "what": "it cannot be written to (EROFS)", "advice": ""}
    events = [event("finding", 2.0, **found, on_host=host) for host in hosts]
    assert shown(make(tmp_path, {0: (77, "a check failed")}, events=events, status=77)) == expected


@pytest.mark.parametrize(("host", "expected"), [("n2", [("n2", HINT)]), ("n1", [])])
def test_the_check_of_a_spare_is_a_hint_against_it_beside_a_single_node_that_trains(tmp_path, host, expected):
    found = event("finding", 2.0, check="spare", level="error", on_host=host, what="no such file", advice="")
    assert shown(make(tmp_path, {}, status=0, events=[found], hosts=("n1",))) == expected


def test_the_program_notes_it_for_all_runs(tmp_path, capsys):
    run = make(tmp_path, {**PEERS, 2: (77, "exit status 1")}, {2: XID})
    node_faults.main(["c", str(run.path), "7", "0.0"])
    (one,) = read_evidence()
    assert one[:7] == (
        *(100.0, "c", "n3", "gpu-broken", PROOF),
        *("the driver lost a GPU: the node must be restarted (Xid 79)", str(run.path)),
    )
    assert (one.job, one.attempt, one.rank) == ("7", "0.0", 2)
    assert capsys.readouterr().out == f"slurmddp: proof against n3: {one.what}\n"
    assert time.time() > one.time

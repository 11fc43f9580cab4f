"""Every recorded failure is told by its cause, its rank and its host."""

import re
import tomllib
from pathlib import Path

import pytest

from slurmddp.diagnose import diagnosis
from slurmddp.diagnose.diagnosis import diagnose
from slurmddp.diagnose.evidence import read_log_evidence
from slurmddp.diagnose.rule_types import format_diagnosis
from slurmddp.diagnose.rules import find_rule, load_rules
from slurmddp.diagnose.verdict import judge
from slurmddp.slurm import queries
from slurmddp.slurm.job_info import JobInfo

FIXTURES = Path(__file__).parent / "fixtures"
NO_SLURM = {"PATH": "/nowhere"}

OURS = [
    ("reset", "exception", 1, "n2"),
    ("shape", "shape-mismatch", 1, "n2"),
    ("count", "shape-mismatch", 1, "vm"),
    ("arguments", "wrong-arguments", 1, "vm"),
    ("unused", "unused-parameters", 0, "n1"),
    ("collectives", "collective-mismatch", 1, "n2"),
    ("parted", "collective-mismatch", 1, "n2"),
    ("hang", "collective-timeout", 1, "n2"),
    ("torn", "torn-checkpoint", 1, "n2"),
    ("killed", "rank-killed", 1, "n2"),
    ("segv", "segfault", 1, "n2"),
    ("memory", "out-of-memory", 1, "n2"),
    ("memoryerror", "host-memory", 1, "n2"),
    ("missingfolder", "file-missing", 1, "n2"),
    ("import", "import-error", 1, "n2"),
    ("nan", "not-finite", 0, "n1"),
    ("nccl", "torch-without-cuda", 1, "n2"),
    ("exit", "exit-status", 1, "n2"),
    ("setup", "shell-setup", None, ""),
    ("missing", "rank-missing", 1, "vm"),
    ("unreachable", "head-unreachable", 1, "vm"),
    ("world", "world-size", None, ""),
    ("ranknotset", "rank-unset", 0, "vm"),
    ("caught", "none", None, ""),
]

BY_HAND = [
    ("exception", "exception", 1, "n2"),
    ("labelled", "exception", 1, "n2"),
    ("interleaved", "exception", 1, "n2"),
    ("torchrun", "exception", 1, "n2"),
    ("killed", "rank-killed", 1, "n2"),
    ("import", "import-error", None, ""),
    ("memory", "out-of-memory", 1, "n2"),
    ("rendezvous", "rendezvous-shared", 1, "n2"),
    ("time-limit", "time-limit", None, ""),
]


def numbered(job_id):
    return JobInfo(job_id, name="hand")


@pytest.fixture
def judge_log(tmp_path):
    """Return a function that judges the output of a job that slurmddp did not submit, by the output alone."""

    def judge_text(text: str, job_id: str = "17"):
        (tmp_path / "x.out").write_text(text)
        return judge(numbered(job_id), read_log_evidence([tmp_path / "x.out"]))

    return judge_text


@pytest.mark.parametrize(("case", "cause", "rank", "host"), OURS)
def test_a_run_that_failed_is_told_by_its_files_alone(recorded, case, cause, rank, host):
    run, job_id = recorded(case)
    found = diagnose(run, job_id, NO_SLURM)
    assert (found.cause, found.rank, found.host) == (cause, rank, host)
    if cause != "none":  # what only a record says has no line, and names an output that a person can read
        assert all(line.text in _content(line) for line in found.evidence if line.number)
        assert all(Path(line.file).suffix == ".out" and Path(line.file).exists() for line in found.evidence)
    assert format_diagnosis(found)[0].startswith(f"{case} (job {job_id})")


@pytest.mark.parametrize(("case", "cause", "rank", "host"), BY_HAND)
def test_a_job_made_by_hand_is_told_by_its_output(by_hand, case, cause, rank, host):
    log = by_hand(case)
    own = re.search(r"(?:JOB|STEP|StepId=) ?(\d+)", log.read_text())
    found = judge(numbered(own[1] if own else "17"), read_log_evidence([log]))
    assert (found.cause, found.rank, found.host) == (cause, rank, host)
    assert all(line.text in _content(line) for line in found.evidence)


def _content(line) -> str:
    """The line of the file that a piece of evidence points at."""
    return Path(line.file).read_text().splitlines()[line.number - 1]


def test_the_others_are_counted_by_what_became_of_them(recorded):
    assert diagnose(*recorded("reset"), NO_SLURM).others == "1 rank then lost its peer"
    assert diagnose(*recorded("import"), NO_SLURM).others == "1 rank failed the same way"
    assert diagnose(*recorded("exit"), NO_SLURM).others == "1 rank was ended with it"
    assert diagnose(*recorded("hang"), NO_SLURM).others == "1 rank waited for it"


def test_consequences_that_come_first_in_a_file_are_not_the_cause(recorded, judge_log):
    """Rank 0 lost its peer after rank 1 had raised; its words come first in the file that both share."""
    run, job_id = recorded("reset")
    mixed = "".join(run.rank_log(job_id, "0.0", rank).read_text() for rank in (0, 1))
    assert judge_log(mixed).what == "the program raised ValueError: the data of rank 1 is wrong"


def test_of_two_causes_the_first_in_time_counts_and_not_the_first_in_the_file(judge_log):
    found = judge_log(
        "[rank3]:[E1121 23:10:11.000001 ProcessGroupNCCL.cpp:632] CUDA error: invalid device ordinal\n"
        "[rank1]:[E1121 23:10:09.000001 ProcessGroupNCCL.cpp:632] CUDA error: uncorrectable ECC error encountered\n"
        "[rank2]:[E1121 23:00:00.000001 ProcessGroupNCCL.cpp:632] NCCL communicator was aborted on rank 2.\n"
    )
    assert (found.cause, found.rank) == ("gpu-broken", 1)


def test_a_record_that_is_newer_does_not_win_over_an_older_one(recorded):
    """The times of the files decide, not the ranks' numbers."""
    run, job_id = recorded("shape")
    times = {rank: run.rank_error(job_id, "0.0", rank).stat().st_mtime for rank in (0, 1)}
    assert times[1] < times[0]
    assert diagnose(run, job_id, NO_SLURM).rank == 1


def test_what_is_not_known_is_called_so_with_the_first_lines_that_look_wrong(judge_log):
    found = judge_log("step 1\nFrobnication failed: the gnomes are out\nstep 2\n" + "step 3\n" * 40)
    assert (found.cause, found.sure, found.rank) == ("unknown", "unknown", None)
    assert [line.text for line in found.evidence] == ["Frobnication failed: the gnomes are out"]


LOGGED = 'Traceback (most recent call last):\n  File "load.py", line 1, in read\nOSError: sample 7 is unreadable\n'
"""What a program prints of an exception, caught or not."""


@pytest.mark.parametrize(
    ("after", "cause", "sure"),
    [
        ("srun: error: n2: task 1: Exited with exit code 1\n", "exception", "certain"),
        ("step 8\nsrun: error: n2: task 1: Exited with exit code 1\n", "exception", "likely"),
        ("srun: error: n2: task 1: Exited with exit code 3\n", "exception", "likely"),
        ("srun: error: n2: task 1: Killed\n", "rank-killed", "likely"),
        ("step 8\nstep 9\nsrun: error: n2: task 1: Killed\n", "rank-killed", "likely"),
        ("step 8\nsrun: error: n2: task 1: Segmentation fault\n", "segfault", "certain"),
        ("srun: error: n2: task 1: Segmentation fault\n", "exception", "likely"),
        (f"step 8\n{LOGGED.replace('OSError: sample 7', 'ValueError: batch 9')}", "exception", "certain"),
    ],
)
def test_an_exception_is_as_certain_as_the_end_of_its_rank_makes_it(judge_log, after, cause, sure):
    found = judge_log(LOGGED + after)
    assert (found.cause, found.sure) == (cause, sure)
    assert "batch 9" in found.what or "ValueError" not in after


def test_an_exception_that_was_logged_is_not_why_a_rank_without_a_record_was_killed(recorded):
    run, job_id = recorded("killed")
    output = run.rank_log(job_id, "0.0", 1)
    output.write_text(f"{output.read_text()}{LOGGED}step 8\n")
    assert (found := diagnose(run, job_id, NO_SLURM)).cause == "rank-killed"
    assert (found.rank, found.host) == (1, "n2")


@pytest.mark.parametrize(
    ("state", "cause"), [("OUT_OF_MEMORY", "out-of-memory"), ("NODE_FAIL", "node-lost"), ("FAILED", "exception")]
)
def test_an_exception_that_was_printed_last_does_not_explain_away_what_slurm_did(tmp_path, monkeypatch, state, cause):
    log = tmp_path / "logged.out"
    log.write_text(LOGGED)
    known = JobInfo(job_id="17", source="sacct", state=state, name="x", output=str(log))
    monkeypatch.setattr(diagnosis, "query_job", lambda *_: (known, ""))
    monkeypatch.setattr(queries, "lost_nodes", lambda *_, **__: ())
    assert diagnose(None, "17", {}).cause == cause


def test_a_bare_killed_is_the_shells_word_only_at_the_end(judge_log):
    assert judge_log("step 1\nKilled\nstep 2\n").sure == "unknown"
    found = judge_log("step 1\nKilled\n")
    assert (found.cause, found.sure) == ("rank-killed", "likely")


def test_the_words_of_a_log_can_do_nothing_to_a_terminal(judge_log):
    found = judge_log("error: \x1b]0;owned\x07 \x1b[2J gone\n")
    assert all(line.isprintable() for line in format_diagnosis(found))


WATCHDOG = "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=42, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, "
WATCHDOG += "Timeout(ms)=600000) ran for 600029 milliseconds before timing out."


def test_a_rank_that_its_watchdog_aborted_had_waited(judge_log):
    """NCCL's watchdog ends the process by SIGABRT: that is how it ended, and not why."""
    found = judge_log(
        f"[rank3]:[E1121 23:10:11.123456789 ProcessGroupNCCL.cpp:632] [Rank 3] {WATCHDOG}\n"
        "terminate called after throwing an instance of 'c10::DistBackendError'\n"
        f"  what():  [PG ID 0 PG GUID 0(default_pg) Rank 3] Process group watchdog thread terminated: {WATCHDOG}\n"
        "srun: error: n1: task 3: Aborted (core dumped)\n"
    )
    assert (found.cause, found.rank) == ("collective-timeout", None)
    assert "did not come" in found.what and "ranks 0, 1, 2" not in found.what


def test_of_a_job_made_by_hand_the_rank_that_waited_for_another_is_not_named(judge_log):
    joined = "torch.distributed.DistStoreError: Timed out after 61 seconds waiting for clients. 1/2 clients joined.\n"
    found = judge_log(f"{TRACEBACK}{joined}srun: error: n1: task 0: Exited with exit code 1\n")
    assert (found.cause, found.rank, found.host) == ("rank-missing", None, "")
    assert found.what == "only 1 of 2 ranks reached the rendezvous within 61 s"


@pytest.mark.parametrize(
    ("warning", "end", "cause"),
    [
        ("wandb: ERROR [Errno 28] No space left on device", "Segmentation fault", "segfault"),
        ("cache: Stale file handle, trying again", "Killed", "rank-killed"),
        ("our README: GPU has fallen off the bus, Xid (79)", "Bus error", "bus-error"),
    ],
)
def test_what_a_program_outlived_is_not_its_cause(judge_log, warning, end, cause):
    found = judge_log(f"{warning}\n" + "step\n" * 500 + f"srun: error: n2: task 5: {end}\n")
    assert found.cause == cause


def test_what_a_program_outlived_is_named_where_nothing_else_is_with_doubt(judge_log):
    found = judge_log("cache: Stale file handle, trying again\n" + "step\n" * 500)
    assert (found.cause, found.sure) == ("stale-file", "likely")


TRACEBACK = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n'


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (TRACEBACK + "RuntimeError: CUDA error: out of memory\n", "gpu-memory"),
        (TRACEBACK + "torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB.\n", "gpu-memory"),
        (TRACEBACK + "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `x`\n", "gpu-memory"),
        (TRACEBACK + "OSError: libcudart.so.12: cannot open shared object file: No such file\n", "import-error"),
        (TRACEBACK + "KeyError: 'nan'\n", "exception"),
        (TRACEBACK + "ValueError: the batch exceeded memory limit (4 > 3)\n", "exception"),
        (TRACEBACK + "ValueError: unable to open /data/torch_files/x.csv\n", "exception"),
        (TRACEBACK + "ValueError: Xid (x) is no column\n", "exception"),
        (
            TRACEBACK + "RuntimeError: unable to open shared memory object </torch_1_2> in read-write mode: Too many "
            "open files (24)\n",
            "too-many-files",
        ),
        (TRACEBACK + "RuntimeError: unable to open file </torch_1_2> in read-write mode\n", "loader-shared-memory"),
        (TRACEBACK + "FileNotFoundError: [Errno 2] No such file or directory: '/data/nan/x'\n", "file-missing"),
        (
            TRACEBACK + "torch.distributed.DistBackendError: NCCL error in: ../NCCLUtils.hpp:275, invalid usage (run "
            "with NCCL_DEBUG=WARN for details), NCCL version 2.20.5\nLast error:\n"
            "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 50000\n",
            "gpu-shared",
        ),
        (
            TRACEBACK + "torch.multiprocessing.spawn.ProcessRaisedException:\n\n"
            "-- Process 1 terminated with the following error:\n" + TRACEBACK + "ValueError: boom\n",
            "exception",
        ),
        ("srun: error: gpu[01-02]: tasks 0-15: Killed\n", "rank-killed"),
        ("slurmstepd: error: execve(): /home/me/train.sh: Permission denied\n", "not-executable"),
        (
            "slurmstepd: error: *** JOB 17 ON n1 CANCELLED AT 2025-11-21T23:10:00 DUE to SIGNAL Terminated ***\n",
            "cancelled",
        ),
    ],
)
def test_what_others_have_met_is_told_by_its_cause(judge_log, text, cause):
    """Texts of torch, NCCL and Slurm that have not been met on the machines of the recorded runs."""
    found = judge_log(text)
    assert (found.cause, "ProcessRaised" in found.what) == (cause, False)


MET = tomllib.loads((FIXTURES / "met.toml").read_text())["log"]
OTHERWISE = {
    "NVIDIA/nccl#975": "network-failed",
    "awslabs/awsome-distributed-ai#192": "network-failed",
    "ymcui/Chinese-LLaMA-Alpaca-2#274": "head-unreachable",
}
"""Met logs that are told of otherwise than people did, by their source."""


@pytest.mark.parametrize("met", [pytest.param(log, id=log["source"]) for log in MET])
def test_what_people_have_shown_in_public_is_told_by_its_cause(judge_log, met):
    own = re.search(r"(?:JOB|STEP|StepId=) ?(\d+)", met["text"])
    found = judge_log(met["text"], own[1] if own else "17")
    assert found.cause == OTHERWISE.get(met["source"], met["cause"])


def test_no_line_that_a_rule_knows_is_passed_over_by_its_words():
    """In what was met, and in every output that was recorded; a step's time and memory are passed over quickly."""
    files = [path for path in FIXTURES.rglob("*") if path.suffix in (".out", ".end")]
    texts = [log["text"] for log in MET] + [path.read_text("utf-8", "replace") for path in files]
    lines_of = {line for text in texts for line in text.splitlines()}
    rules = [rule for rule in load_rules().own if rule.regex and rule.place == "line"]
    known = {line for line in lines_of if any(rule.match(line) for rule in rules)}
    assert len(known) > 50 and [line for line in known if find_rule(line) is None] == []
    ordinary = "step 7 loss 2.1 memory 40 gib on cuda time taken 3 s room design module limit"
    assert find_rule(ordinary) is None


def test_torchruns_page_may_lack_an_exit_code(judge_log):
    found = judge_log(
        "Root Cause (first observed failure):\n[0]:\n  rank      : 1 (local_rank: 1)\n  exitcode  : N/A\n"
    )
    assert found.rank == 1


@pytest.mark.parametrize("size", [0, 2, 3, 9, 30])
def test_a_record_that_is_torn_is_none_and_the_rank_is_told_by_its_output(recorded, size):
    run, job_id = recorded("reset")
    record = run.rank_record(job_id, "0.0", 1)
    record.write_bytes(record.read_bytes()[:size])
    found = diagnose(run, job_id, NO_SLURM)
    assert (found.cause, found.rank, found.host) == ("exception", 1, "n2")
    assert found.what == "the program raised ValueError: the data of rank 1 is wrong"


def test_a_torn_record_of_rank_0_is_no_success(recorded):
    run, job_id = recorded("caught")
    run.rank_record(job_id, "0.0", 0).write_text("0 do")
    run.events.unlink()
    assert diagnose(run, job_id, NO_SLURM).cause != "none"


def test_files_that_no_rank_wrote_are_left_out(recorded):
    run, job_id = recorded("reset")
    folder = run.attempt(job_id, "0.0")
    for name in ("99999999.out", "999999999999999999999.out", "flight.99999999999"):
        (folder / name).write_text("x")
    (folder / "7.end").write_text("9" * 5000 + " rank 7 on n1: x")
    run.rank_error(job_id, "0.0", 1).write_text("[" * 100000)
    assert diagnose(run, job_id, NO_SLURM).rank == 1


def test_what_slurm_says_of_another_job_is_not_of_this_one(judge_log):
    log = (
        "$ cat slurm-16.out\n"
        "slurmstepd: error: *** JOB 16 ON n1 CANCELLED AT 2026-11-21T23:10:00 DUE TO TIME LIMIT ***\n"
        "srun: error: n2: task 1: Segmentation fault\n"
    )
    assert judge_log(log).cause == "segfault"
    assert judge_log(log, "16").cause == "time-limit"

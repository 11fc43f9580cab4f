"""Slurm's word and the files' together: what each state makes of them."""

import json
import os
import threading

import pytest
from event_lines import event, write

from slurmddp.diagnose import diagnosis as diagnosing
from slurmddp.diagnose.diagnosis import diagnose, diagnose_in_time
from slurmddp.errors import ClusterError, SlurmddpError
from slurmddp.runs.exit_records import decisive_record, read_records
from slurmddp.runs.files import append_record
from slurmddp.runs.layout import RunDir
from slurmddp.runs.ownership import HERE
from slurmddp.runtime.stopping import policy
from slurmddp.slurm import client, queries
from slurmddp.slurm.client import Answer
from slurmddp.slurm.job_info import JobInfo

OOM = """\
slurmstepd: error: Detected 1 oom_kill event in StepId=17.0. Some of the step tasks have been OOM Killed.
srun: error: n2: task 1: Out Of Memory
srun: Terminating StepId=17.0
slurmstepd: error: *** STEP 17.0 ON n1 CANCELLED AT 2026-11-21T23:10:00 ***
srun: error: n1: task 0: Killed
"""
"""What a Slurm with cgroups writes; recorded elsewhere."""


@pytest.fixture
def slurm_says(monkeypatch):
    """Return a function that sets what Slurm knows of job 17, and why it did not answer."""

    def answer(silence="", **known):
        job = JobInfo(**{"job_id": "17", "state": "", "source": "scontrol", **known})
        monkeypatch.setattr(diagnosing, "query_job", lambda *_: (job, silence))

    return answer


@pytest.fixture
def told(monkeypatch, slurm_says, tmp_path):
    """Return a function that diagnoses a job that slurmddp did not submit, by its state and its output."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(queries, "lost_nodes", lambda *_, **__: ("n2",))

    def tell(output: str = "", **known: str):
        (tmp_path / "x.out").write_text(output)
        slurm_says(**{"name": "x", "output": str(tmp_path / "x.out"), "nodes": "n[1-2]", **known})
        return diagnose(None, "17", {})

    return tell


def test_a_job_whose_batch_script_names_it_unlike_its_folder_is_the_runs(slurm_says, tmp_path):
    run = RunDir(tmp_path / "my-job")
    run.create()
    append_record(run.submissions, {"job": "17", "name": "my job"})
    run.batch_log("17").write_text("")
    slurm_says(name="my job", state="TIMEOUT")
    assert diagnose(run, "17", {}).cause == "time-limit"
    slurm_says(name="another", state="TIMEOUT")
    assert "is now another job: another" in diagnose(run, "17", {}).what


def test_out_of_memory_names_the_task_that_was_killed_and_what_the_largest_had(told):
    found = told(OOM, state="OUT_OF_MEMORY", exit_status="0:125", max_rss="3904M")
    assert (found.cause, found.rank, found.host) == ("out-of-memory", 1, "n2")
    assert found.what.endswith("killed some of its processes; the largest task had 3904M")


def test_out_of_memory_names_what_the_fullest_node_used_and_what_to_ask_for(slurm_says, tmp_path):
    run = RunDir(tmp_path / "train")
    run.create()
    append_record(run.submissions, {"job": "7", "name": "train"})
    run.attempt("7", "0.0").mkdir(parents=True)
    run.batch_log("7").write_text(OOM)
    ranks = {
        "0": ["n1", 1.0, 2**30],
        "1": ["n1", 1.0, 2**30],
        "2": ["n2", 1.0, 20 * 2**30],
        "3": ["n2", 1.0, 11 * 2**30],
    }
    start = event("attempt_start", 1.0, nodes="n[1-2]", log_offset=0, allocated=None, memory_mb=32768)
    write(run, start, event("usage", 2.0, ranks=ranks), event("attempt_end", 3.0, status=137, reason="x"))
    slurm_says(job_id="7", name="train", state="OUT_OF_MEMORY", exit_status="0:125")
    found = diagnose(run, "7", {})
    assert found.cause == "out-of-memory"
    assert found.what.endswith("; the ranks on n2 used 31.0 of 32.0 GB when they were last measured")
    assert found.advice.startswith("ask for more, as --mem 48G, or use less")
    write(run, {key: value for key, value in start.items() if key != "memory_mb"}, event("usage", 2.0, ranks=ranks))
    assert "used 31.0 GB when" in diagnose(run, "7", {}).what
    write(run, start, event("usage", 2.0, ranks={"0": "damaged"}), event("attempt_end", 3.0, status=137, reason="x"))
    assert "measured" not in diagnose(run, "7", {}).what


CAUGHT = "Traceback (most recent call last):\n  File 'a'\nValueError: error\n"
INTERRUPTED = "Traceback (most recent call last):\n  File 'a'\nKeyboardInterrupt\n"
RAISED = "epoch 1 loss 0.52\nTraceback (most recent call last):\n  File 'a'\nOSError: x\n"
EXITED = "srun: error: n2: task 1: Exited with exit code 1\nsrun: Terminating StepId=17.0\n"
ENDED = {"state": "COMPLETED", "exit_status": "0:0"}


@pytest.mark.parametrize(
    ("output", "known", "cause"),
    [
        ("", {"state": "TIMEOUT"}, "time-limit"),
        ("", {"state": "PREEMPTED"}, "preempted"),
        ("", {"state": "FAILED", "exit_status": "0:53"}, "output-missing"),
        ("Killed\n", {"state": "HIBERNATED"}, "rank-killed"),
        (CAUGHT, ENDED, "none"),
        (INTERRUPTED, {"state": "TIMEOUT"}, "time-limit"),
        (INTERRUPTED, {"state": "CANCELLED"}, "cancelled"),
        (INTERRUPTED, {"state": "FAILED", "exit_status": "1:0"}, "interrupted"),
        (f"{RAISED}{EXITED}all done\n", ENDED, "status-swallowed"),
        (f"{RAISED}{EXITED}epoch 1 loss 0.61\nall done\n", ENDED, "none"),
        (f"{EXITED}epoch 1 loss 0.52\nepoch 1 loss 0.61\nall done\n", ENDED, "none"),
        (f"{EXITED}epoch 1 loss 0.52\nall done\n", ENDED, "status-swallowed"),
        (f"{RAISED}{EXITED}a\nb\nc\nd\n", ENDED, "none"),
        (f"{RAISED}{EXITED}", {**ENDED, "last_step": "COMPLETED"}, "none"),
        (f"{RAISED}{EXITED}epoch 2 loss 0.4\n", {**ENDED, "last_step": "FAILED"}, "status-swallowed"),
    ],
)
def test_the_state_and_the_output_tell_the_cause(told, output, known, cause):
    """`--signal=INT@60` asks for SIGINT, by which Python ends as if it were interrupted by hand.

    A script may start its step again and hide its status; what came last counts, and the accounting knows it.
    """
    found = told(output, **known)
    assert found.cause == cause and not (cause == "cancelled" and found.others)


def test_a_state_that_says_it_all_needs_no_log(told):
    assert (found := told(state="OUT_OF_MEMORY")).cause == "out-of-memory"
    assert [line.text for line in found.evidence] == ["OUT_OF_MEMORY ()"]
    found = told(state="FAILED", exit_status="1:0", reason="NonZeroExitCode")
    assert (found.cause, found.evidence[-1].text) == ("unknown", "FAILED, NonZeroExitCode, 1:0")


def test_a_node_that_was_lost_is_named_by_those_that_are_down(told):
    found = told(
        "slurmstepd: error: *** JOB 17 ON n1 CANCELLED AT 2026-11-21T23:10:00 DUE TO NODE FAILURE ***\n",
        state="NODE_FAIL",
    )
    assert (found.cause, found.host, found.what) == ("node-lost", "n2", "node n2 was lost")
    assert found.advice.endswith("-x n2")


def test_a_job_that_hung_until_its_limit_since_a_rank_had_raised_is_told_of_the_rank(told):
    log = "[rank1]: Traceback (most recent call last):\n[rank1]:   File 'a'\n[rank1]: ValueError: x\n"
    log += "slurmstepd: error: *** STEP 17.0 ON n1 CANCELLED AT 2026-11-21T23:10:00 DUE TO TIME LIMIT ***\n"
    found = told(log, state="TIMEOUT")
    assert (found.cause, found.rank) == ("exception", 1)
    assert found.others == "the job then hung, or ran on, until its time limit"


def test_who_cancelled_a_job_is_told_where_slurm_keeps_it(told):
    assert told(state="CANCELLED", cancelled_by="1000").what == "the job was cancelled by user 1000"
    assert told(state="CANCELLED").what == "the job was cancelled; Slurm does not say by which user"


@pytest.mark.parametrize(
    "known", [{"state": "CANCELLED"}, {"source": "files"}, {"state": "CANCELLED", "cancelled_by": "0"}]
)
def test_who_cancelled_a_run_by_slurmddp_is_told_without_accounting(recorded, slurm_says, known):
    run, job_id = recorded("reset")
    slurm_says(job_id=job_id, **known)
    head = {"time": 1795300000.0, "job": job_id, "attempt": "0.0", "rank": None, "host": "n1"}
    append_record(run.events, head | {"event": "cancel", "by": "ada"})
    append_record(run.events, head | {"event": "end", "status": 75, "rank": 0})
    found = diagnose(run, job_id, {})
    assert (found.cause, found.what) == ("cancelled", "the job was cancelled by `slurmddp cancel` (ada)")
    append_record(run.events, head | {"event": "start", "attempt": "1.0"})
    assert "ada" not in diagnose(run, job_id, {}).what


def test_what_waits_is_told_why_and_what_is_held_that_it_is(told):
    assert (found := told(state="PENDING", reason="PartitionTimeLimit")).cause == "waiting"
    assert found.what == "it waits: its time limit is above the partition's"
    for reason in ("JobHeldAdmin", "launch_failed_requeued_held", "launch failed requeued held"):
        assert (found := told(state="PENDING", reason=reason)).cause == "held"
        assert "scontrol release 17" in found.advice


def test_a_job_that_waits_without_a_reason_yet_is_told_so(told):
    found = told(state="PENDING", reason="")
    assert (found.what, found.evidence[0].text) == ("it waits: Slurm has given no reason yet", "PENDING")


def test_a_job_that_waits_for_others_is_told_of_them(told, monkeypatch):
    holders = [
        JobInfo(job_id="12", state="RUNNING", source="squeue", user="ada", nodes="n1", elapsed_s=60, limit_s=660),
        *(JobInfo(job_id=str(number), state="RUNNING", source="squeue", user="bob", nodes="n2") for number in range(4)),
    ]
    monkeypatch.setattr(queries, "running_on", lambda partition, *_, **__: holders if partition == "gpu" else [])
    found = told(state="PENDING", reason="Resources", partition="gpu")
    assert [line.text for line in found.evidence] == [
        "PENDING (Resources)",
        "job 12 of ada runs on n1 for at most 10m more",
        "job 0 of bob runs on n2 without a time limit",
        "job 1 of bob runs on n2 without a time limit",
        "2 more jobs",
    ]
    assert "it starts when they end" in found.advice and "`slurmddp cluster`" in found.advice
    queue = [("9", "JobHeldUser"), ("11", "Resources"), ("8_[1-3]", "Priority"), ("17", "Priority"), ("18", "Priority")]
    rows = "\n".join(f"slurmddp|id={job}|state=PENDING|user=eve|reason={reason}" for job, reason in queue)
    monkeypatch.setattr(client, "ask", lambda *_, **__: Answer(0, rows, ""))
    found = told(state="PENDING", reason="Priority", partition="gpu")
    assert [line.text for line in found.evidence[-2:]] == [
        "job 11 of eve waits, and comes before it",
        "job 8_[1-3] of eve waits, and comes before it",
    ]
    assert len(told(state="PENDING", reason="Dependency", partition="gpu").evidence) == 1


def test_what_to_type_resumes_the_run_from_any_folder(recorded, slurm_says):
    run, job_id = recorded("reset")
    slurm_says(job_id=job_id, state="CANCELLED")
    assert diagnose(run, job_id, {}).advice == "submit it again; a program that finds its checkpoint continues there"
    run.spec.touch()
    assert diagnose(run, job_id, {}).advice.startswith(f"slurmddp submit {run.spec} (")


def test_an_output_that_is_missing_is_named(slurm_says, tmp_path):
    slurm_says(state="FAILED", exit_status="3:0", output=str(tmp_path / "gone.out"))
    assert diagnose(None, "17", {}).what == f"the cause is not known: its output {tmp_path}/gone.out is missing"


def test_the_programs_own_line_of_a_traceback_is_evidence(told):
    own = 'Traceback (most recent call last):\n  File "train.py", line 9, in <module>\n    main()\n'
    library = '  File "/v/lib/python3.11/site-packages/torch/nn/module.py", line 2, in forward\n    f(x)\n'
    log = f"{own}{library}ValueError: x\n"
    found = told(log, state="FAILED", exit_status="1:0")
    assert [line.text for line in found.evidence] == ["ValueError: x", 'File "train.py", line 9, in <module>']
    assert len(told(log.replace("train.py", "<string>"), state="FAILED").evidence) == 1


def test_a_number_that_is_another_jobs_by_now_is_not_believed(recorded, slurm_says):
    slurm_says(state="COMPLETED", name="other")
    assert diagnose(*recorded("reset"), {}).cause == "exception"


def test_a_run_on_this_machine_that_goes_on_is_said_to(tmp_path):
    run, job_id = RunDir(tmp_path / "a"), f"local-20261121-231000-{os.getpid()}"
    run.attempt(job_id, "0.0").mkdir(parents=True)
    run.owner.write_text(f"{HERE} {job_id} 0.0\n")
    assert diagnose(run, job_id, {}).cause == "running"
    run.owner.unlink()
    assert diagnose(run, job_id, {}).cause == "unknown"


def test_an_unknown_job_without_files_is_an_error_with_the_reason(told):
    with pytest.raises(
        ClusterError, match="job 17: scontrol did not end within 20 s, and there are no files of it here"
    ):
        told(source="files", silence="scontrol did not end within 20 s")


def test_a_setting_of_a_sweep_is_told_by_the_folder_of_its_own(monkeypatch, slurm_says, tmp_path):
    monkeypatch.chdir(tmp_path)
    own = RunDir(tmp_path / "jobs" / "exp" / "lr=1,seed=2")
    own.attempt("17_1", "0.0").mkdir(parents=True)
    own.batch_log("17_1").touch()
    (own.attempt("17_1", "0.0") / "0.end").write_text("77 rank 0 on n2: ValueError: boom\n")
    slurm_says(job_id="17_1", name="exp", state="FAILED", exit_status="77:0")
    found = diagnose(RunDir(tmp_path / "jobs" / "exp"), "17", {})
    assert (found.name, found.job_id, found.cause, found.host) == ("exp/lr=1,seed=2", "17_1", "exception", "n2")
    slurm_says(job_id="17_1", name="exp", state="RUNNING", nodes="n2")
    assert diagnose(RunDir(tmp_path / "jobs" / "exp"), "17_1", {}).advice == "slurmddp logs -f 17_1"


def test_a_sweep_that_slurm_has_forgotten_is_asked_for_by_one_of_its_tasks(tmp_path, slurm_says):
    slurm_says(source="files")
    (tmp_path / "lr=1" / "logs").mkdir(parents=True)
    (tmp_path / "lr=1" / "logs" / "17_0.out").touch()
    with pytest.raises(ClusterError, match="name a setting, or one of its tasks, for example 17_0"):
        diagnose(RunDir(tmp_path), "17", {})


def test_what_a_program_said_before_it_ended_itself_is_shown(slurm_says, tmp_path):
    slurm_says(name="a", state="FAILED")
    run = RunDir(tmp_path / "a")
    run.attempt("17", "0.0").mkdir(parents=True)
    said = "usage: train.py [-h] [--lr LR]\ntrain.py: error: argument --lr: invalid float value: '1..x'\n"
    run.rank_log("17", "0.0", 0).write_text(said)
    run.rank_record("17", "0.0", 0).write_text("77 rank 0 on n1: exit status 2\n")
    found = diagnose(run, "17", {})
    assert (found.cause, found.rank) == ("wrong-arguments", 0)
    assert "train.py: error: argument --lr: invalid float value: '1..x'" in [line.text for line in found.evidence]


@pytest.fixture
def run(slurm_says, tmp_path):
    """Return a run whose job 17 Slurm has as failed."""
    slurm_says(name="a", state="FAILED", exit_status="77:0")
    made = RunDir(tmp_path / "a")
    made.create()
    return made


def happens(run, kind, attempt="0.0", **fields):
    head = {"time": 1795300000.0, "event": kind, "job": "17", "attempt": attempt, "rank": None, "host": "n1"}
    append_record(run.events, head | fields)


@pytest.mark.parametrize(
    ("kind", "reason", "cause"),
    [
        ("job_end", "HF_TOKEN must be set where the job is submitted", "variable-missing"),
        ("job_end", "the time limit is 60 s, and the notice comes 120 s before its end; give more", "limit-too-short"),
        ("fenced", "the run belongs to job 16, which is RUNNING", "run-taken"),
    ],
)
def test_a_job_that_started_nothing_is_told_by_the_reason_of_its_end(run, kind, reason, cause):
    run.batch_log("17").write_text(f"2026-11-21T23:10:00+0000 slurmddp: {reason}\n")
    assert diagnose(run, "17", {}).cause == "unknown", "the words of the log are for people"
    happens(run, kind, reason=reason)
    found = diagnose(run, "17", {})
    assert (found.cause, found.evidence[0].text) == (cause, reason)


def test_a_job_that_was_done_when_it_was_preempted_has_not_failed(run, slurm_says):
    slurm_says(name="a", state="PREEMPTED", exit_status="0:0")
    run.attempt("17", "0.0").mkdir(parents=True)
    assert diagnose(run, "17", {}).cause == "preempted"
    run.rank_record("17", "0.0", 0).write_text("0 done\n")
    assert (found := diagnose(run, "17", {})).what == diagnosing._ENDED_WELL.what
    assert found.attempt == "0.0"


def test_a_job_that_gave_up_is_told_by_its_last_start_and_not_by_what_its_end_repeats(run):
    (run.attempt("17", "0.0")).mkdir(parents=True)
    run.rank_record("17", "0.0", 1).write_text("76 rank 1 on n2: RuntimeError: Connection closed by peer\n")
    last = "rank 1 on n2: ValueError: CUDA error: invalid device ordinal"
    happens(run, "attempt_start", nodes="n[1-2]", log_offset=0)
    happens(run, "attempt_end", status=76, reason=last)
    happens(run, "job_end", status=76, reason=f"gives up: 4 start(s) in a row failed; the last: {last}")
    found = diagnose(run, "17", {})
    assert (found.cause, found.what) == ("gave-up", "failed starts in a row: 4")


def test_a_rank_that_its_launcher_has_ended_is_not_the_first(run):
    """Torchrun of a batch script of the user's own: its summary in the log names the rank that was killed."""
    run.attempt("17", "0.0").mkdir(parents=True)
    happens(run, "attempt_start", nodes="n[1-2]", log_offset=0)
    for rank, reason in (
        (0, "RuntimeError: Connection closed by peer"),
        (2, policy._ENDED_BY_LAUNCHER + "; slurmddp saved"),
    ):
        run.rank_record("17", "0.0", rank).write_text(f"76 rank {rank} on n{1 + rank // 2}: {reason}\n")
    rows = (
        "time      : 2026-11-28_08:17:48",
        "host      : n2",
        "rank      : 3 (local_rank: 1)",
        "exitcode  : -9 (pid: 896)",
    )
    run.batch_log("17").write_text(
        "Root Cause (first observed failure):\n[0]:\n" + "".join(f"  {row}\n" for row in rows)
    )
    happens(run, "attempt_end", status=76, reason="rank 2 on n2: SIGTERM received")
    found = diagnose(run, "17", {})
    assert (found.cause, found.rank, found.host) == ("rank-killed", 3, "n2")


def test_a_set_up_that_failed_is_told_by_its_record_until_the_job_starts_again(run):
    run.batch_record("17").write_text("1 set-up failed with status 1: module load cuda/13\n")
    found = diagnose(run, "17", {})
    assert (found.cause, found.evidence[0].place) == ("set-up-failed", str(run.batch_log("17")))
    run.attempt("17", "0.0").mkdir(parents=True)
    run.rank_record("17", "0.0", 0).write_text("77 rank 0 on n1: ValueError: boom\n")
    assert diagnose(run, "17", {}).cause == "set-up-failed"
    os.utime(run.batch_record("17"), (1, 1))
    happens(run, "attempt_start", nodes="n1", log_offset=0)
    assert diagnose(run, "17", {}).cause == "exception"


def test_what_srun_said_belongs_to_the_attempt_in_whose_part_of_the_log_it_stands(run):
    said = "srun: error: n2: task 1: Segmentation fault\n", "srun: error: n1: task 0: Killed\n"
    run.batch_log("17").write_text("".join(said))
    for number, offset in enumerate((0, len(said[0]))):
        run.attempt("17", f"0.{number}").mkdir(parents=True)
        happens(run, "attempt_start", f"0.{number}", nodes="n[1-2]", log_offset=offset)
    found = diagnose(run, "17", {})
    assert (found.cause, found.host, [one.cause for one in found.before]) == ("rank-killed", "n1", ["segfault"])
    run.events.unlink()
    found = diagnose(run, "17", {})
    assert (found.cause, [one.cause for one in found.before]) == ("segfault", ["segfault"]), "the whole log is of each"


def test_a_diagnosis_that_nobody_asked_for_ends_with_its_time(run, monkeypatch):
    given_up = threading.Event()
    monkeypatch.setattr(diagnosing, "diagnose", lambda *_: given_up.wait(60))
    clock = iter([0.0, 1.9, 2.1])
    with pytest.raises(SlurmddpError, match=r"^not finished in 2 s; type: slurmddp diagnose a$"):
        diagnose_in_time(run, "7", {}, clock=lambda: next(clock))
    given_up.set()
    assert next(clock, None) is None


def test_one_that_ends_in_time_is_the_same_as_one_that_was_asked_for(run):
    happens(run, "job_end", status=77, reason="HF_TOKEN must be set where the job is submitted")
    assert diagnose_in_time(run, "7", {}) == diagnose(run, "7", {})


AGENT = """\
Traceback (most recent call last):
  File "/env/bin/torchrun", line 8, in <module>
    sys.exit(main())
  File "/env/lib/python3.11/site-packages/torch/distributed/run.py", line 1028, in main
    run(args)
  File "/env/lib/python3.11/site-packages/torch/distributed/launcher/api.py", line 374, in launch_agent
    result = agent.run()
  File "/env/lib/python3.11/site-packages/torch/distributed/elastic/rendezvous/static_tcp_rendezvous.py", line 67, in x
    self._store = TCPStore(
torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29500, \
useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use
"""
COMMAND_LINE = "/env/bin/llamafactory-cli"
CALLED = f"""\
Traceback (most recent call last):
  File "{COMMAND_LINE}", line 8, in <module>
    subprocess.run(["torchrun", "launcher.py"], check=True)
subprocess.CalledProcessError: Command '['torchrun', 'launcher.py']' returned non-zero exit status 1.
"""
IN_PROCESS = AGENT.replace("torch/distributed/launcher/api.py", "accelerate/commands/launch.py")


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (AGENT + CALLED, "exit status 1"),
        (AGENT + CALLED, CALLED.splitlines()[-1]),
        (IN_PROCESS, IN_PROCESS.splitlines()[-1]),
        (IN_PROCESS, "exit status 1"),
    ],
)
def test_a_launcher_that_each_rank_starts_is_why_a_port_is_in_use(run, output, reason):
    run.attempt("17", "0.0").mkdir(parents=True)
    run.rank_log("17", "0.0", 0).write_text("the tokenizer is loaded\n")
    run.rank_log("17", "0.0", 1).write_text(output)
    run.rank_record("17", "0.0", 1).write_text(f"76 rank 1 on n1: {reason}\n")
    found = diagnose(run, "17", {})
    assert (found.cause, found.rank, found.host, found.again) == ("launcher-in-rank", 1, "n1", False)
    assert "slurmddp submit train.py" in found.advice and "EADDRINUSE" in found.evidence[0].text


def test_a_port_in_use_where_no_rank_starts_a_launcher_is_another_programs(run):
    run.attempt("17", "0.0").mkdir(parents=True)
    own = '  File "/env/torch/distributed/elastic/multiprocessing/errors/__init__.py", line 367, in wrapper\n'
    said = f"Traceback (most recent call last):\n{own}{AGENT.splitlines()[-1]}\n"
    run.rank_log("17", "0.0", 0).write_text(said)
    run.rank_record("17", "0.0", 0).write_text(f"76 rank 0 on n1: {AGENT.splitlines()[-1]}\n")
    assert (found := diagnose(run, "17", {})).cause == "port-taken" and found.again


@pytest.mark.parametrize(
    ("end", "cause"),
    [
        ("srun: error: n1: tasks 0-1: Exited with exit code 1\n", "launcher-in-rank"),
        ("srun: error: n1: task 1: Exited with exit code 1\nsrun: error: n1: task 0: Killed\n", "launcher-in-rank"),
        ("srun: error: n1: task 0: Exited with exit code 1\nsrun: error: n2: task 1: Killed\n", "port-taken"),
    ],
)
def test_launchers_of_several_ranks_are_told_in_one_output_where_the_ranks_share_a_node(told, end, cause):
    """One a node is how people start torchrun by srun."""
    lines = [f"{rank}: {line}\n" for rank in (0, 1) for line in AGENT.splitlines()]
    assert told("".join(lines) + end, state="FAILED", exit_status="1:0").cause == cause


def test_what_a_record_says_is_told_with_the_output_that_a_person_can_read(run):
    """The rank's own, that of the script for a script of one's own, and the script's for what the supervisor says."""
    run.attempt("17", "0.0").mkdir(parents=True)
    run.rank_record("17", "0.0", 0).write_text("77 rank 0 on n1: exit status 3\n")
    assert [line.place for line in diagnose(run, "17", {}).evidence] == [str(run.batch_log("17"))]
    run.rank_log("17", "0.0", 0).touch()
    assert [line.place for line in diagnose(run, "17", {}).evidence] == [str(run.rank_log("17", "0.0", 0))]
    run.rank_record("17", "0.0", 0).write_text("75 rank 0 on n1: told to stop (preempted)\n")
    found = diagnose(run, "17", {})
    assert (found.cause, found.what) == ("preempted", "the ranks were told to stop (preempted)")
    assert [line.place for line in found.evidence] == [str(run.rank_log("17", "0.0", 0))]
    run.rank_record("17", "0.0", 0).unlink()
    happens(run, "job_end", status=76, reason="gives up: 4 starts in a row failed, with no new checkpoint since")
    found = diagnose(run, "17", {})
    assert (found.cause, found.evidence[0].place) == ("gave-up", str(run.batch_log("17")))


def test_the_exception_of_a_rank_of_ones_own_script_is_found_in_the_output_of_the_script(run):
    """The ranks share that output: each of their lines has torch's label, and a launcher repeats the traceback."""
    error = "IndexError: Target 12 is out of bounds."
    stack = ("Traceback (most recent call last):", '  File "train.py", line 26, in <module>', "    loss = f(x)", error)
    other = (stack[0], '  File "train.py", line 27, in <module>', "    loss.backward()", "RuntimeError: reset")
    both = [f"[rank{rank}]: {line}" for pair in zip(stack, other, strict=True) for rank, line in enumerate(pair)]
    again = [f"  {line}" for line in ("Root Cause (first observed failure):", *stack)]
    lines = ["step 0", *both, *again, "srun: error: n1: task 0: Exited with exit code 1"]
    run.batch_log("17").write_text("".join(f"{line}\n" for line in lines * 2))  # of two attempts
    part = len("".join(f"{line}\n" for line in lines))
    message = {"message": error, "extraInfo": {"py_callstack": "\n".join(stack)}}
    for number, name in enumerate(("0.0", "0.1")):
        run.attempt("17", name).mkdir(parents=True)
        happens(run, "attempt_start", name, nodes="n1", log_offset=number * part)
        run.rank_record("17", name, 0).write_text(f"77 rank 0 on n1: {error}\n")
        run.rank_record("17", name, 1).write_text("76 rank 1 on n1: RuntimeError: reset\n")
        run.rank_error("17", name, 0).write_text(json.dumps({"message": message}))
    found = diagnose(run, "17", {})
    log = run.batch_log("17")
    for one, first in ((found, len(lines)), (found.before[0], 0)):
        line, frame = one.evidence[:2]
        assert (one.cause, one.rank) == ("exception", 0)
        assert (frame.place, frame.text) == (f"{log}:{first + 4}", stack[1].strip())
        assert (line.place, line.text) == (f"{log}:{first + 8}", error)


@pytest.mark.parametrize(
    ("script", "advice"),
    [
        (
            "launch() {\n  srun \\\n    /opt/py/bin/python3 -P -u -m slurmddp.worker \\\n    a.py\n",
            "/opt/py/bin/python3 -m pip",
        ),
        ("source /w/env/bin/activate\n    python -P -u -m slurmddp.worker a.py\n", "/w/env/bin/python -m pip"),
        ("srun python a.py\nexec /opt/py/bin/python3 -P -u -m slurmddp.batch\n", "install it into the environment"),
    ],
    ids=["path", "venv", "own"],
)
def test_a_missing_module_is_installed_into_the_python_of_the_ranks(run, script, advice):
    run.attempt("17", "0.0").mkdir(parents=True)
    run.submitted_script("17").write_text(script)
    run.rank_record("17", "0.0", 0).write_text("77 rank 0 on n1: ModuleNotFoundError: No module named 'yaml.x'\n")
    said = diagnose(run, "17", {}).advice
    assert said.startswith(advice) and ("-m pip install yaml;" in said) == ("pip" in advice)


def test_a_training_of_a_script_that_is_done_is_no_failure_of_the_next(slurm_says, tmp_path):
    run = RunDir(tmp_path / "loop")
    run.create()
    append_record(run.submissions, {"job": "17", "name": "loop"})
    run.batch_log("17").write_text("[W] Warning: torch.something is deprecated\n")
    for name in ("0.0", "0.1"):
        run.attempt("17", name).mkdir(parents=True)
    for kind, fields in (("attempt_start", {"nodes": "n1", "log_offset": 0}), ("attempt_end", {"status": 0}),
                         ("job_end", {"status": 0})):  # fmt: skip
        happens(run, kind, "0.0", reason="done", **fields)
    happens(run, "attempt_start", "0.1", nodes="n1", log_offset=43)
    slurm_says(name="loop", state="RUNNING", nodes="n1")
    found = diagnose(run, "17", {})
    assert (found.cause, found.attempt, found.before) == ("running", "0.1", ())


def test_a_script_that_went_on_after_a_failed_launch_is_told_so(slurm_says, tmp_path):
    run = RunDir(tmp_path / "loop")
    run.create()
    append_record(run.submissions, {"job": "17", "name": "loop"})
    run.batch_log("17").write_text("")
    for name, status, reason in (("0.0", 77, "exit status 2"), ("0.1", 0, "done")):
        run.attempt("17", name).mkdir(parents=True)
        for kind, fields in (("attempt_start", {"nodes": "n1", "log_offset": 0}), ("attempt_end", {"status": status}),
                             ("job_end", {"status": status})):  # fmt: skip
            happens(run, kind, name, reason=reason, **fields)
    slurm_says(name="loop", state="COMPLETED", exit_status="0:0", nodes="n1")
    found = diagnose(run, "17", {})
    said = "it ended well; before, its script went on after attempt 0.0 had failed: exit status 2"
    assert (found.cause, found.what) == ("none", said)


def test_a_job_whose_output_slurm_could_not_open_is_told_the_file(told, tmp_path):
    found = told(state="FAILED", exit_status="0:53")
    assert f"could not open the job's output {tmp_path}/x.out: " in found.what
    assert found.advice.startswith("make its folder, on a file system that the nodes share")


def test_a_python_of_a_script_that_has_not_attached_is_judged_by_its_traceback(run):
    error = "ValueError: Error initializing: environment variable RANK expected, but not set"
    frame = "  File '/home/me/train.py', line 3, in <module>"
    run.batch_log("17").write_text(f"Traceback (most recent call last):\n{frame}\n{error}\n")
    run.attempt("17", "0.0").mkdir(parents=True)
    happens(run, "attempt_start", nodes="n[1-2]", log_offset=0)
    happens(run, "attempt_end", status=77, reason="the launch ended with status 1, and no rank left a record")
    found = diagnose(run, "17", {})
    assert (found.cause, found.evidence[0].place) == ("rank-unset", f"{run.batch_log('17')}:3")


def test_the_file_of_sbatch_error_is_read_too_of_each_attempt_its_part(run):
    """With `#SBATCH --error` the tracebacks and srun's words are there alone."""
    stack = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n{}\n'
    texts = [stack.format("ConnectionError: no answer"), stack.format("IndexError: Target 12 is out of bounds.")]
    run.batch_log("17").write_text("step 0\n" * 40)
    run.batch_errors("17").write_text("".join(texts))
    for number, name in enumerate(("0.0", "0.1")):
        run.attempt("17", name).mkdir(parents=True)
        happens(run, "attempt_start", name, nodes="n1", log_offset=0, errors_offset=number * len(texts[0]))
        happens(run, "attempt_end", name, status=77, reason="the launch ended with status 1")
    found = diagnose(run, "17", {})
    assert [line.place for line in found.evidence] == [f"{run.batch_errors('17')}:{number}" for number in (6, 5)]
    assert found.what.endswith("IndexError: Target 12 is out of bounds.")
    assert found.before[0].evidence[0].place == f"{run.batch_errors('17')}:3"


def test_of_ranks_that_fail_alike_every_command_names_the_one_that_failed_first(slurm_says, tmp_path):
    """A rank may leave its record late: its error file is from when it failed."""
    run = RunDir(tmp_path / "train")
    run.create()
    append_record(run.submissions, {"job": "7", "name": "train"})
    run.attempt("7", "0.0").mkdir(parents=True)
    for rank, (failed_at, recorded_at) in enumerate([(12, 30), (10, 20), (14, 15)]):
        record, error = run.rank_record("7", "0.0", rank), run.rank_error("7", "0.0", rank)
        record.write_text(f"77 rank {rank} on n1: ValueError: bad\n")
        stack = "Traceback (most recent call last):\nValueError: bad"
        message = {"message": "ValueError: bad", "extraInfo": {"py_callstack": stack}}
        error.write_text(json.dumps({"message": message}))
        os.utime(record, (recorded_at, recorded_at))
        os.utime(error, (failed_at, failed_at))
    write(run, event("attempt_start", 1.0, nodes="n1", log_offset=0))
    slurm_says(job_id="7", name="train", state="FAILED", exit_status="77:0")
    decisive = decisive_record(read_records(run.attempt("7", "0.0")))
    assert decisive and (diagnose(run, "7", {}).rank, decisive.rank) == (1, 1)

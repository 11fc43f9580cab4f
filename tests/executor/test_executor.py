"""Python callables as jobs: submitit's interface and files, our script, and what submitit gets wrong."""

import inspect
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import cloudpickle
import pytest
import submitit
from polling import until
from submitit.core import core, plugins, utils
from submitit.slurm import slurm as theirs

import slurmddp
import slurmddp.executor
from slurmddp import cli, exit_codes
from slurmddp.cluster.partitions import Cluster
from slurmddp.errors import ClusterError, RankError, UsageError
from slurmddp.executor import executor as executor_module
from slurmddp.executor import job as job_module
from slurmddp.executor import parameters, run_call
from slurmddp.executor.job import GONE, Job, query_states
from slurmddp.runs import lookup, registry
from slurmddp.runs.files import read_records
from slurmddp.runs.layout import RunDir
from slurmddp.runtime.exiting.classify import judge
from slurmddp.runtime.launch.rank import read_rank
from slurmddp.runtime.rank_process import RankProcess, this_process
from slurmddp.runtime.stopping.stopping import Stopping
from slurmddp.slurm import client, queries, sbatch_command
from slurmddp.slurm.client import Answer, LostAnswerError
from slurmddp.slurm.job_info import JobId
from slurmddp.submission import submit_once

GOLDEN = Path(__file__).parents[1] / "golden" / "submitit.sbatch"
SHELLCHECK = Path(sys.executable).parent / "shellcheck"
JUST_SUBMITITS = {"slurm_wckey": "a", "slurm_mail_type": "END", "slurm_mail_user": "me", "slurm_qos": "q"}


def executor(folder: Path | str, **values) -> slurmddp.Executor:
    made = slurmddp.Executor(folder, python="python3")
    made.update_parameters(**values)
    return made


def header(script: str) -> dict[str, str]:
    lines = [line.removeprefix("#SBATCH --") for line in script.splitlines() if line.startswith("#SBATCH --")]
    return {line.partition("=")[0]: line.partition("=")[2] for line in lines}


def golden() -> str:
    made = executor("/shared/logs/%j", nodes=2, tasks_per_node=4, gpus_per_node=4, timeout_min=240, name="train")
    made.update_parameters(slurm_setup=["module load cuda"], slurm_array_parallelism=10)
    return made.render(100)


def test_the_script_is_the_one_on_file():
    """After an intended change: python tests/executor/test_executor.py writes the file anew; read the difference."""
    assert golden() == GOLDEN.read_text()


@pytest.mark.parametrize("values", [{}, {"stderr_to_stdout": True, "slurm_srun_args": ["-v", "--x=a b"]}])
def test_scripts_are_clean_for_shellcheck(values, tmp_path):
    file = tmp_path / "job.sh"
    file.write_text(executor(tmp_path / "a b%j", slurm_setup=["export A=1"], slurm_teardown="date", **values).render(3))
    found = subprocess.run([SHELLCHECK, "--severity=style", file], capture_output=True, text=True, check=False)
    assert found.stdout == ""


def test_submitits_names_mean_what_they_mean_to_submitit(tmp_path):
    made = executor(
        tmp_path,
        name="a job",
        timeout_min=90,
        nodes=2,
        tasks_per_node=3,
        cpus_per_task=4,
        mem_gb=1.5,
        slurm_partition="p",
        slurm_gpus_per_task=2,
        slurm_signal_delay_s=90,
        slurm_comment="hello world",
        slurm_exclusive=True,
        slurm_additional_parameters={"reservation": "r", "nice": 0, "licenses": None},
        local_setup=["ignored"],
        **JUST_SUBMITITS,
    )
    assert header(made.render()) == {
        "job-name": "a-job",
        "nodes": "2",
        "ntasks-per-node": "3",
        "gpus-per-node": "6",
        "cpus-per-task": "4",
        "mem": "1536M",
        "time": "90",
        "partition": "p",
        "qos": "q",
        "reservation": "r",
        "open-mode": "append",
        "requeue": "",
        "signal": "USR2@90",
        "comment": '"hello world"',
        "mail-type": "END",
        "mail-user": "me",
        "exclusive": "",
        "wckey": "a",
        "nice": "0",
    }


@pytest.mark.parametrize(
    ("values", "time_limit", "lead"),
    [
        ({}, "5", "USR2@75"),
        ({"timeout_min": 1}, "1", "USR2@15"),
        ({"slurm_time": "4:00:00"}, "4:00:00", "USR2@120"),
        ({"timeout_min": 8, "slurm_time": 9}, "9", "USR2@120"),
        ({"slurm_timeout_min": 8, "timeout_min": 9}, "8", "USR2@120"),
    ],
)
def test_short_limits_and_limits_as_text(tmp_path, values, time_limit, lead):
    asked = header(executor(tmp_path, **values).render())
    assert (asked["time"], asked["signal"]) == (time_limit, lead)
    assert (asked["nodes"], asked["ntasks-per-node"], asked["job-name"]) == ("1", "1", "submitit")


@pytest.mark.parametrize(
    ("values", "asked"),
    [
        ({"gpus_per_node": 0}, None),
        ({"slurm_num_gpus": 2}, "2"),
        ({"slurm_gres": "gpu:a100:8"}, "a100:8"),
        ({"slurm_gres": "gpu"}, "1"),
        ({"slurm_additional_parameters": {"gres": "gpu:2"}}, "2"),
        ({"slurm_gres": "lustre:1"}, None),
    ],
)
def test_gpus_are_asked_for_by_node(tmp_path, values, asked):
    assert header(executor(tmp_path, **values).render()).get("gpus-per-node") == asked


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"slurm_partitoin": "p"}, "unknown parameter 'slurm_partitoin'; did you mean slurm_partition"),
        ({"timout_min": 3}, "did you mean timeout_min"),
        ({"slurm_use_srun": False}, "slurm_use_srun=False"),
        ({"mem_gb": "4"}, "'4' is not a number of gigabytes"),
        ({"nodes": "two"}, "update_parameters: nodes: 'two' is not a whole number"),
        ({"timeout_min": "soon"}, "update_parameters: timeout_min: 'soon' is not a Slurm time"),
        ({"slurm_array_parallelism": -1}, "-1 is not a whole number"),
        ({"timeout_min": 2, "slurm_signal_delay_s": 90}, "slurm_signal_delay_s=90 leaves nothing"),
        ({"slurm_additional_parameters": {"output": "x"}}, "slurmddp sets this itself"),
        ({"slurm_additional_parameters": {"launcher": "fork"}}, "launcher is not an option of an executor: each rank"),
        ({"slurm_additional_parameters": {"wrap": "numactl"}}, "wrap is not an option of an executor"),
        ({"slurm_additional_parameters": {"hang_timeout": -3}}, "slurm_additional_parameters: hang_timeout: '-3' is"),
        ({"slurm_additional_parameters": {"container": "x.sif"}}, "container is not an option of an executor"),
        (
            {"slurm_additional_parameters": {"nonsense": False}},
            "nonsense: False is no value of it; .* leave nonsense out",
        ),
        ({"slurm_comment": False}, "comment: False is no value of it"),
        ({"slurm_additional_parameters": ["requeue"]}, r"\['requeue'\] is not a dict of sbatch's options"),
        ({"slurm_setup": 5}, "setup: 5 is not a list of strings"),
        ({"slurm_teardown": [1]}, r"teardown: \[1\] is not a list of strings"),
        ({"slurm_srun_args": "--label 'x"}, "srun_args: .* close the quotes"),
    ],
)
def test_what_cannot_be_is_refused_at_once_and_changes_nothing(tmp_path, values, message):
    made = executor(tmp_path)
    with pytest.raises(UsageError, match=message):
        made.update_parameters(**values)
    assert made.parameters == {}


def test_words_for_srun_may_be_one_text(tmp_path):
    assert "    --label --foo 'a b' \\\n" in executor(tmp_path, slurm_srun_args="--label --foo 'a b'").render()


def test_options_for_srun_may_be_among_the_additional_parameters(tmp_path):
    made = executor(tmp_path, slurm_additional_parameters={"srun": ["mpi=pmi2"]})
    assert "    --mpi=pmi2 \\\n" in made.render()


@pytest.mark.parametrize("folder", ["x/%t", "a\\b", "a\nb"])
def test_a_folder_that_jobs_could_not_use_is_refused(folder):
    with pytest.raises(UsageError, match="folder"):
        slurmddp.Executor(folder)


def test_settings_are_submitits_also_with_its_prefix(tmp_path):
    made = slurmddp.Executor(tmp_path, slurm_max_num_timeout=7, slurm_python="singularity exec x.sif python")
    assert made.max_num_timeout == 7
    assert "\n    singularity exec x.sif python -P -u -m slurmddp.worker " in made.render()
    with pytest.raises(UsageError, match="did you mean max_num_timeout"):
        slurmddp.Executor(tmp_path, max_num_timeouts=3)


def test_the_module_stands_in_for_submitit():
    assert slurmddp.executor.AutoExecutor is slurmddp.executor.SlurmExecutor is slurmddp.Executor
    assert slurmddp.executor.SlurmJob is Job and slurmddp.executor.__version__ == submitit.__version__
    assert slurmddp.executor.helpers.Checkpointable is submitit.helpers.Checkpointable
    with pytest.raises(AttributeError, match="neither"):
        slurmddp.executor.NoSuchName  # noqa: B018 - the access is what is tested


AS_SUBMITIT = """
import sys, slurmddp.executor
sys.modules["submitit"] = slurmddp.executor
import submitit, submitit.helpers
from submitit.core import utils
from submitit import AutoExecutor
assert AutoExecutor is slurmddp.Executor and utils.__name__ == "submitit.core.utils"
job = AutoExecutor(folder="logs", cluster="debug").submit(max, 1, 2)
assert job.result() == 2 and type(job).__module__.startswith("submitit.")
"""


def test_a_library_that_imports_submitit_gets_the_executor(tmp_path):
    subprocess.run([sys.executable, "-c", AS_SUBMITIT], cwd=tmp_path, check=True)


def test_a_script_can_be_read_where_there_is_no_slurm(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    made = executor(tmp_path / "logs")
    assert made.render().startswith("#!/bin/bash\n")
    with pytest.raises(ClusterError, match="sbatch was not found"):
        made.submit(max, 1, 2)
    assert list((tmp_path / "logs").iterdir()) == []


def test_calls_that_are_too_large_to_pickle_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(executor_module, "query_cluster", lambda _: Cluster(max_array_size=1001))
    made = slurmddp.Executor(tmp_path / "logs", max_pickle_size_gb=1e-6)
    with pytest.raises(UsageError, match="max_pickle_size_gb"):
        made.map_array(len, ["x" * 2000] * 3)
    assert list((tmp_path / "logs").iterdir()) == []


def test_a_place_where_no_records_can_be_kept_is_named(tmp_path):
    (tmp_path / "logs.runs").write_text("in the way")
    with pytest.raises(UsageError, match=r"logs\.runs, next to the folder, cannot be created: File exists"):
        slurmddp.Executor(tmp_path / "logs").submit(max, 1, 2)


def test_neither_the_package_nor_a_rank_loads_what_it_does_not_need():
    """`import slurmddp` is light, and a job's Python may have no jinja2."""
    check = "import sys; loaded = {!r} & set(sys.modules); sys.exit(str(loaded) if loaded else 0)"
    for code, heavy in (
        ("import slurmddp", {"torch", "submitit"}),
        ("import slurmddp.executor.run_call", {"torch", "jinja2", "click", "msgspec", "rich"}),
    ):
        subprocess.run([sys.executable, "-c", f"{code}; {check.format(heavy)}"], check=True)


CHANGED = "submitit has changed: slurmddp.executor must be looked at again, and `submitit` in pyproject.toml"


def test_contract_with_submitit():
    """The names that are not promised to anybody, and that our executor needs."""
    assert set(parameters._SPECIAL) <= set(parameters.DEFAULTS), f"{CHANGED} (parameters of a Slurm job)"
    assert set(submitit.AutoExecutor._typed_parameters()) == set(parameters.GENERIC), f"{CHANGED} (shared parameters)"
    assert {"time", "array_parallelism"} <= set(parameters.DEFAULTS), f"{CHANGED} (its defaults)"
    needed = {
        theirs.SlurmExecutor: ("_internal_process_submissions", "_internal_update_parameters", "_valid_parameters"),
        theirs.SlurmInfoWatcher: ("update", "get_info", "is_done", "get_state", "register_job"),
        theirs.SlurmJob: ("_get_logs_string", "cancel", "exception", "results", "state"),
        core.Job: ("result", "wait"),
        utils.DelayedSubmission: ("_checkpoint_function", "set_timeout", "dump", "load", "result"),
        utils.JobPaths: ("get_first_id_independent_folder", "move_temporary_file", "submission_file", "result_pickle"),
        submitit.helpers.TorchDistributedEnvironment: ("export",),
    }
    for owner, names in needed.items():
        assert not [name for name in names if not hasattr(owner, name)], f"{CHANGED} ({owner.__name__})"
    state = {"_registered", "_finished", "_info_dict", "_num_calls", "_last_status_check"}
    assert state <= set(vars(theirs.SlurmInfoWatcher())), f"{CHANGED} (InfoWatcher)"
    assert {"_timeout_min", "_timeout_countdown"} <= set(vars(utils.DelayedSubmission(max))), f"{CHANGED} (counters)"
    assert "_sub_jobs" in vars(core.Job("x", "1", (0, 1))), f"{CHANGED} (Job)"
    assert {"slurm", "local", "debug"} <= set(plugins.get_executors()), f"{CHANGED} (clusters)"
    assert theirs.SlurmJobEnvironment._env["global_rank"] == "SLURM_PROCID", f"{CHANGED} (JobEnvironment)"
    export = inspect.signature(submitit.helpers.TorchDistributedEnvironment.export).parameters
    assert list(export) == ["self", "set_cuda_visible_devices", "overwrite"], f"{CHANGED} (torch's variables)"


class Counting(submitit.helpers.Checkpointable):
    """Counts, and goes on counting."""

    def __init__(self) -> None:
        self.count, self.starts = 0, 0

    def __call__(self, total: int) -> tuple[int, int]:
        self.starts += 1
        print(f"start {self.starts} at {self.count}", flush=True)  # noqa: T201 - as users do
        while self.count < total:
            time.sleep(0.02)
            self.count += 1
        return self.starts, self.count


def add(first, second):
    return first + second


def fail_on_the_last(seconds):
    if os.environ["RANK"] == "1":
        raise ValueError("no such luck")
    time.sleep(seconds)


def meet():
    import torch  # noqa: PLC0415 - as in a user's function
    import torch.distributed as dist  # noqa: PLC0415 - the same

    ready = submitit.helpers.TorchDistributedEnvironment().export(set_cuda_visible_devices=False)
    dist.init_process_group("gloo")
    number = torch.tensor([dist.get_rank() + 1])
    dist.all_reduce(number)
    here = submitit.JobEnvironment()
    print(f"rank {here.global_rank}")  # noqa: T201 - as users do
    return int(number), ready.rank, here.global_rank, int(os.environ["LOCAL_RANK"]), here.node


def kill_oneself():
    os.kill(os.getpid(), signal.SIGKILL)


def submit_another(folder):
    inner = slurmddp.Executor(folder)
    inner.update_parameters(timeout_min=5)
    return inner.submit(add, 1, 1).job_id


@pytest.fixture(scope="module")
def jobs(sandbox, tmp_path_factory):
    """All the jobs of this module, side by side; the first is stop signal received before the others are in its way."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**sandbox.environment(), "OMP_NUM_THREADS": "1", "SLURM_PROCID": "7"}.items():
            patch.setenv(name, value)
        patch.setattr(Job, "_results_timeout_s", 1)
        patch.setattr(Job, "watcher", job_module.Watcher(delay_s=2))
        yield submitted(sandbox, tmp_path_factory.mktemp("executor") / "logs")


def submitted(sandbox, folder: Path) -> dict[str, Job]:
    made = slurmddp.Executor(folder, max_num_timeout=0, max_restarts=0)
    made.update_parameters(timeout_min=20, slurm_partition="low")
    found = {"preempted": made.submit(Counting(), 150)}
    wait_for_start(found["preempted"])
    sandbox.preempt(found["preempted"].job_id)
    made.update_parameters(timeout_min=5, slurm_partition="gpu")
    found |= {"cancelled": made.submit(Counting(), 10**6), "timed out": made.submit(Counting(), 10**6)}
    found |= {"killed": made.submit(kill_oneself), "outer": made.submit(submit_another, folder.with_name("inner"))}
    with made.batch():
        found |= {f"array {index}": made.submit(add, index, second=10) for index in range(3)}
    found["abandoned"] = abandoned(made)
    made.update_parameters(tasks_per_node=2)
    found["failed"] = made.submit(fail_on_the_last, 600)
    made.update_parameters(nodes=2)
    return found | {"ranks": made.submit(meet)}


def abandoned(made: slurmddp.Executor) -> Job:
    """Return the second job of an array whose program was interrupted as soon as sbatch had answered."""

    def interrupt(*_):
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slurmddp.Executor, "_hand_over", interrupt)
        with pytest.raises(KeyboardInterrupt):
            made.map_array(add, [1, 3], [2, 4])
    return Job(made.folder, f"{made._numbers[-1]}_1")


def wait_for_start(job: Job) -> None:
    until(lambda: "start" in (job.stdout() or ""), otherwise=lambda: f"{job}: {job.stdout()} {job.stderr()}")


def batch_log(job: Job) -> str:
    return job.stderr() or ""


def test_a_scancelled_job_stays_cancelled(jobs, wait_for_job):
    job = jobs["cancelled"]
    wait_for_start(job)
    job.cancel()
    with pytest.raises(utils.UncompletedJobError, match=r"has not produced any output \(state: CANCELLED\)"):
        job.result()
    assert wait_for_job(job.job_id)["Restarts"] == "0"
    assert "back into the queue" not in batch_log(job)


def test_the_notice_of_the_time_limit_counts_as_one(jobs):
    job = jobs["timed out"]
    wait_for_start(job)
    job._interrupt(timeout=True)
    with pytest.raises(utils.FailedJobError, match="timed-out too many times"):
        job.result()


def test_a_killed_job_is_told(jobs):
    with pytest.raises(utils.UncompletedJobError, match=r"state: FAILED[^$]*ended with status 137"):
        jobs["killed"].result()


def test_the_line_of_srun_on_a_killed_rank_is_found(jobs, wait_for_job, monkeypatch, slurm_env, capfdbinary):
    for name, value in slurm_env.items():
        monkeypatch.setenv(name, value)
    job = jobs["killed"]
    wait_for_job(job.job_id)
    cli.run_command_line(["diagnose", job.job_id, "--runs-dir", f"{job.paths.folder}.runs"])
    said = capfdbinary.readouterr().out.decode()
    assert "rank 0: it was killed (SIGKILL)" in said
    assert f"logs/{job.job_id}.out:" in said and "task 0: Killed" in said
    assert "task 0: Killed" in job.stderr() and "task 0: Killed" not in job.paths.stderr.read_text()


def test_an_array_returns_every_result(jobs):
    array = [jobs[f"array {index}"] for index in range(3)]
    assert [job.result() for job in array] == [10, 11, 12]
    assert [job.job_id.partition("_")[2] for job in array] == ["0", "1", "2"]
    assert header(array[0].paths.submission_file.read_text())["array"] == "0-2%3"


def test_a_job_that_nobody_hands_its_call_takes_it_by_itself(jobs):
    assert jobs["abandoned"].result() == 7


def test_a_job_may_submit_another(jobs):
    folder = jobs["outer"].paths.folder.with_name("inner")
    assert Job(folder, jobs["outer"].result()).result() == 2


def test_a_rank_that_fails_ends_its_peers_and_says_why(jobs):
    with pytest.raises(utils.FailedJobError, match=r"task=1[^$]*no such luck"):
        jobs["failed"].result()


def test_four_ranks_meet_as_torchs(jobs):
    job = jobs["ranks"]
    assert job.results() == [(10, rank, rank, rank % 2, rank // 2) for rank in range(4)]
    assert [job.task(rank).stdout() for rank in range(4)] == [f"rank {rank}\n" for rank in range(4)]
    assert job.state in ("COMPLETED", "COMPLETING", "RUNNING")


def test_preempted_under_term_alone_a_call_goes_on_from_its_checkpoint(jobs):
    job = jobs["preempted"]
    starts, count = job.result()
    assert (starts, count) == (2, 150)
    assert "start 1 at 0" in job.stdout() and "start 2 at 0" not in job.stdout()
    assert "start 1" not in job.paths.stdout.read_text()
    events = [*read_records(RunDir(Path(f"{job.paths.folder}.runs") / job.job_id).events)]
    notice = next(event for event in events if event["event"] == "notice")
    assert (notice["cause"], notice["reason"]) == ("SIGTERM", "preempted")


def test_the_script_that_was_submitted_is_the_one_that_was_shown(jobs, slurm):
    job = jobs["timed out"]
    held = slurm("scontrol", "write", "batch_script", job.job_id, "-")
    assert held == job.paths.submission_file.read_text()
    made = slurmddp.Executor(job.paths.folder, max_restarts=0)
    made.update_parameters(timeout_min=5, slurm_partition="gpu")
    assert made.render() == held


@pytest.mark.usefixtures("jobs")
def test_a_thousand_calls_are_one_submission(tmp_path, slurm):
    made = slurmddp.Executor(tmp_path / "logs")
    made.update_parameters(slurm_additional_parameters={"hold": True})
    thousand = made.map_array(add, range(1002), range(1002))
    number = thousand[0].job_id.partition("_")[0]
    assert [job.job_id for job in thousand] == [f"{number}_{index}" for index in range(1002)]
    assert set(query_states([job.job_id for job in thousand]).values()) == {"PENDING"}
    slurm("scancel", number)
    assert set(query_states([job.job_id for job in thousand]).values()) == {"CANCELLED"}


@pytest.mark.usefixtures("jobs")
@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"nodes": 99}, "^nodes=99: partition gpu has "),
        ({"slurm_partition": "short", "timeout_min": 60}, "^timeout_min=60: partition short allows at most 00:10:00"),
        ({"slurm_gpus_per_node": "h100:1"}, "^gpus_per_node h100:1: a node of partition gpu has "),
        ({"mem_gb": 10**6}, "^slurm_mem=1000000G: .*; at most slurm_mem=[0-9]+; "),
    ],
    ids=["nodes", "time", "gpus", "memory"],
)
def test_what_the_cluster_can_never_give_is_refused_as_submit_does(tmp_path, slurm, values, said):
    made = slurmddp.Executor(tmp_path / "logs")
    made.update_parameters(slurm_exclusive=False, slurm_additional_parameters={"hold": True}, **values)
    with pytest.raises(ClusterError, match=f"{said}.*force=True"):
        made.submit(add, 1, 2)
    assert not (tmp_path / "logs").exists()
    if "slurm_partition" not in values:
        forced = slurmddp.Executor(tmp_path / "logs", force=True)
        forced.update_parameters(slurm_additional_parameters={"hold": True}, **values)
        slurm("scancel", forced.submit(add, 1, 2).job_id)


@pytest.mark.usefixtures("jobs")
@pytest.mark.parametrize(
    ("settings", "values", "said"),
    [
        ({}, {"slurm_partition": "nosuch"}, r"^slurm_partition: 'nosuch' does not exist; [^;]*$"),
        ({}, {"slurm_setup": ["if true; then"]}, "^slurm_setup: bash cannot parse these lines: .*; correct them$"),
        ({"python": "/no/such/python"}, {}, r"^Executor\(python=...\): there is no program '/no/such/python' here; "),
        ({}, {"slurm_srun_args": ["-v", "--nosuch=3"]}, "^slurm_srun_args: .* srun's options: -v --nosuch=3$"),
        ({}, {"slurm_srun_args": ["nosuch"]}, "^slurm_srun_args: not all of these are among srun's options: nosuch$"),
        ({}, {"slurm_additional_parameters": {"srun": ["nosuch"]}}, "^slurm_srun_args: .*: --nosuch$"),
    ],
    ids=["partition", "set-up", "python", "srun", "a program", "srun among the others"],
)
def test_what_would_end_the_job_on_its_node_is_refused_before_the_queue(tmp_path, settings, values, said):
    made = slurmddp.Executor(tmp_path / "logs", **settings)
    made.update_parameters(**values)
    with pytest.raises((ClusterError, UsageError), match=said):
        made.submit(add, 1, 2)
    assert not (tmp_path / "logs").exists()


def test_the_folder_of_its_jobs_is_remembered_so_that_they_are_found_by_id(tmp_path, monkeypatch):
    monkeypatch.setattr(sbatch_command, "submit", lambda *_, **__: (JobId("17"), ""))
    executor(tmp_path / "plain").submit(max, 1, 2)
    executor(tmp_path / "each" / "%j").submit(max, 1, 2)
    assert registry.known_folders() == [tmp_path / "each", tmp_path / "plain.runs"]
    for folder, job_id in ((tmp_path / "plain.runs", "17"), (tmp_path / "each" / "18.runs", "18_3")):
        (folder / job_id / "logs").mkdir(parents=True)
        assert lookup.find([job_id], "jobs")[0].run.path == folder / job_id


def test_ctrl_c_while_sbatch_works_leaves_the_call_to_the_job(tmp_path, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(sbatch_command, "submit", interrupt)
    with pytest.raises(KeyboardInterrupt):
        executor(tmp_path / "logs").submit(max, 1, 2)
    assert len(list((tmp_path / "logs").glob("*.0.pkl"))) == 1


def test_slurm_is_asked_again_once_the_result_is_there(tmp_path, monkeypatch):
    """What the call returned is there before Slurm has ended the job; an answer of before is not kept."""
    answers = iter(["RUNNING", "RUNNING", "COMPLETED"])
    monkeypatch.setattr(job_module, "query_states", lambda ids: dict.fromkeys(ids, next(answers)))
    monkeypatch.setattr(Job, "watcher", job_module.Watcher(delay_s=1000))
    job = Job(tmp_path, "5")
    assert (job.state, job.state) == ("RUNNING", "RUNNING"), "without a result, Slurm is asked now and then"
    utils.cloudpickle_dump(("success", 5), job.paths.result_pickle)
    time.sleep(0.01)
    assert job.state == "RUNNING"
    time.sleep(0.01)
    assert (job.state, job.state) == ("COMPLETED", "COMPLETED")


def test_the_views_find_a_job_by_its_id(jobs, wait_for_job, slurm_env, tmp_path, monkeypatch, capfdbinary):
    for name, value in slurm_env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)

    def view(*words: str) -> str:
        cli.run_command_line([*words, "--runs-dir", f"{jobs['ranks'].paths.folder}.runs"])
        return b"".join(capfdbinary.readouterr()).decode()

    ranks, failed = jobs["ranks"], jobs["failed"]
    with pytest.raises(utils.FailedJobError):
        failed.result()
    ranks.results()
    assert f"submitit: job {ranks.job_id} is " in view("status", ranks.job_id)
    wait_for_job(failed.job_id)
    said = view("status", failed.job_id)
    assert "submit it again as you did before" in said and "slurmddp submit" not in said
    assert "rank 0\n" in view("logs", ranks.job_id) and "rank 3\n" in view("logs", ranks.job_id, "--rank", "3")
    assert "rank 2 n2 | rank 2\n" in view("logs", ranks.job_id, "--all")
    jobs["preempted"].result()
    first, second = (view("logs", jobs["preempted"].job_id, "--attempt", name) for name in ("0.0", "1.0"))
    assert "start 1 at 0\n" in first and "start 2" not in first
    assert "start 2 at" in second and "start 1" not in second
    assert view("logs", jobs["preempted"].job_id, "--attempt", "all").count("start 1 at 0\n") == 1
    assert "no such luck" in view("logs", failed.job_id, "--errors")
    assert f"submitit (job {failed.job_id}), FAILED: the program raised" in view("diagnose", failed.job_id)
    assert "a job has ranks only while it runs" in view("stacks", failed.job_id)
    monkeypatch.setenv("PATH", "/nonexistent")
    assert f"submitit: job {failed.job_id} is FAILED" in view("status", failed.job_id)  # by its files alone


def record_end(folder, job_id, text):
    """Write the record of rank 0 where the batch script of an executor's job has it."""
    run = RunDir(folder.with_name(f"{folder.name}.runs") / job_id)
    run.attempt(job_id, "0.0").mkdir(parents=True)
    run.rank_record(job_id, "0.0", 0).write_text(text)


@pytest.mark.usefixtures("jobs")
def test_what_slurm_has_forgotten_is_told_by_the_files(tmp_path):
    """Without slurmdbd a job is known for MinJobAge only."""
    assert query_states(["1", "2_3"]) == {"1": GONE, "2_3": GONE}
    lost, done, torn = Job(tmp_path, "1"), Job(tmp_path, "2_3"), Job(tmp_path, "4")
    record_end(tmp_path, "4", "0 do")
    record_end(tmp_path, "2_3", "0 done\n")
    utils.cloudpickle_dump(("success", 5), done.paths.result_pickle)
    assert (lost.done(), lost.state) == (True, "FAILED")
    assert (done.done(), done.state, done.result()) == (True, "COMPLETED", 5)
    assert (torn.done(), torn.state) == (True, "FAILED")
    with pytest.raises(utils.UncompletedJobError, match="state: FAILED"):
        lost.result()


@pytest.mark.parametrize(("state", "lost_id", "done_id"), [("PREEMPTED", "8", "9"), ("TIMEOUT", "18", "19")])
def test_a_call_that_was_done_when_its_job_was_preempted_is_done(tmp_path, monkeypatch, state, lost_id, done_id):
    """Slurm has a job so that ended within its grace time: from 24.05 on as PREEMPTED, before as TIMEOUT."""
    monkeypatch.setattr(job_module, "query_states", lambda ids: dict.fromkeys(ids, state))
    killed, done = Job(tmp_path, lost_id), Job(tmp_path, done_id)
    record_end(tmp_path, done_id, "0 done\n")
    assert (killed.state, done.state) == (state, "COMPLETED")


@pytest.mark.usefixtures("jobs")
def test_a_controller_that_does_not_answer_ends_no_job(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("PATH", str(tmp_path))
    silent = Job(tmp_path, "3")
    assert (silent.done(force_check=True), silent.state) == (False, "UNKNOWN")
    assert "asks again" in caplog.text
    with pytest.raises(ClusterError):
        silent.cancel()
    silent.cancel(check=False)


class Ended(BaseException):
    """In place of a process that does nothing more."""


class Checkpointed:
    """Interrupts itself once, and has a `checkpoint` that does what it is told."""

    def __init__(self, stop=lambda: None, again: str = "itself") -> None:
        self.stop, self.again = stop, again

    def __call__(self):
        self.stop()
        return "returned"

    def checkpoint(self):
        if self.again == "raises":
            raise ValueError("cannot be saved")
        return utils.DelayedSubmission(max, 1, 2) if self.again == "itself" else None


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Return the files of a rank that is alone, and a function that makes a call of it; PAUSE is left as it was."""
    for name, value in {"SUBMITIT_EXECUTOR": "slurm", "SUBMITIT_FOLDER": str(tmp_path), "SLURM_JOB_ID": "7"}.items():
        monkeypatch.setenv(name, value)

    def end():
        raise Ended

    monkeypatch.setattr(run_call, "_wait_for_end", end)
    files = run_call.Files(read_rank({}))

    def call(function, timeouts=3):
        delayed = utils.DelayedSubmission(function)
        delayed.set_timeout(5, timeouts)
        made_call = run_call.Call(delayed, files)
        signal.signal(run_call.PAUSE, made_call.pause)
        return made_call

    before = signal.getsignal(run_call.PAUSE)
    yield call, files
    signal.signal(run_call.PAUSE, before)


def interrupted(made, reason="preempted", again="itself", timeouts=3) -> run_call.Verdict:
    """Return what a call that is interrupted while it runs says of its end."""
    verdicts = []

    def stop():
        notices = threading.Thread(target=lambda: verdicts.append(call.stop(reason)))
        with pytest.raises(Ended):  # noqa: PT012 - it may come in either line
            notices.start()
            time.sleep(30)
        notices.join()
        raise Ended

    call = made[0](stop if again == "not at all" else Checkpointed(stop, again), timeouts)
    with pytest.raises(Ended):
        call.run(lambda: None)
    return verdicts[0]


def test_a_call_whose_program_a_signal_has_ended_is_saved_all_the_same(made, monkeypatch):
    """Slurm sends the notice to whatever the callable has started, too."""
    heard = threading.Event()
    monkeypatch.setattr(this_process().signals, "signal_seen", heard)

    def fail():
        threading.Thread(target=lambda: (heard.set(), call.stop("preempted"))).start()
        raise utils.FailedJobError("terminated")

    call = made[0](Checkpointed(fail))
    with pytest.raises(Ended):
        call.run(lambda: None)
    assert made[1].load_call().result() == 2


@pytest.mark.parametrize("error", [ValueError("no"), ConnectionError("no")])
def test_whatever_a_call_without_peers_raises_is_final_and_kept(made, monkeypatch, capsys, error):
    """A lost peer is worth another start; a web page that does not answer is the caller's business."""

    def fail():
        raise error

    process = RankProcess()
    process.stopping = Stopping(read_rank({}), process.signals, process.exit)
    monkeypatch.setattr(run_call, "this_process", lambda: process)
    monkeypatch.setattr(run_call, "_accept_ready_ranks", lambda: None)
    files = made[1]
    files.write_call(utils.DelayedSubmission(fail))
    with pytest.raises((ValueError, RankError)) as caught:
        run_call.main()
    assert judge(caught.value).status == exit_codes.FAILED
    assert kept(files)[0] == "error" and f"{type(error).__name__}: no" in kept(files)[1]
    assert ("Traceback" in capsys.readouterr().err) == isinstance(error, ConnectionError)


def kept(files: run_call.Files):
    return utils.pickle_load(files.result(0))


def test_a_notice_saves_the_call_and_what_comes_back_is_what_checkpoint_has_said(made):
    assert interrupted(made).status == exit_codes.STOPPED
    again = made[1].load_call()
    assert (again.result(), again._timeout_countdown) == (2, 3)
    assert not made[1].result(0).exists()


def test_only_the_time_limit_is_counted(made):
    interrupted(made, reason="time limit")
    assert made[1].load_call()._timeout_countdown == 2


@pytest.mark.parametrize(
    ("again", "timeouts", "message"),
    [
        ("none", 3, "Job not requeued because: checkpoint function returned None."),
        ("raises", 3, "ValueError: cannot be saved"),
        ("itself", 0, "Job not requeued because: timed-out too many times."),
    ],
)
def test_a_call_that_cannot_go_on_has_failed_and_says_so(made, again, timeouts, message):
    assert interrupted(made, "time limit", again, timeouts).status == exit_codes.FAILED
    word, trace = kept(made[1])
    assert (word, message in trace) == ("error", True)


def test_a_function_without_checkpoint_keeps_the_rest_of_its_time_and_begins_anew_when_preempted(made, tmp_path):
    assert made[0](max).stop("time limit") is None
    assert interrupted(made, again="not at all").status == exit_codes.STOPPED
    assert list(tmp_path.iterdir()) == []


def test_a_main_thread_that_is_stuck_does_not_keep_the_call_from_being_saved(made, monkeypatch):
    monkeypatch.setattr(signal, "pthread_kill", lambda *_: None)
    monkeypatch.setattr(run_call, "PAUSE_LIMIT_S", 0.01)
    call = made[0](Checkpointed())
    assert call.stop("preempted").status == exit_codes.STOPPED
    with pytest.raises(Ended):
        call.run(lambda: None)


def test_a_call_that_has_returned_or_failed_by_itself_is_not_saved(made):
    call, failing = made[0](Checkpointed()), made[0](Checkpointed(lambda: 1 / 0))
    assert call.run(lambda: None) == "returned"
    with pytest.raises(ZeroDivisionError):
        failing.run(lambda: None)
    assert call.stop("preempted") is failing.stop("preempted") is None


def test_a_call_that_does_not_come_is_told(made, monkeypatch):
    monkeypatch.setattr(run_call, "ARRIVAL_LIMIT_S", 0)
    with pytest.raises(RuntimeError, match=r"7_submitted\.pkl did not appear within 0 s"):
        made[1].load_call()


def test_the_body_is_started_by_the_worker_alone():
    done = subprocess.run([sys.executable, "-m", *parameters.BODY[1:]], capture_output=True, text=True, check=False)
    assert (done.returncode, "is started by slurmddp.worker" in done.stderr) == (1, True)


LOST = LostAnswerError("sbatch did not end within 60 s")


@pytest.fixture
def at_once(monkeypatch):
    """Look for a lost job once, without a pause."""
    monkeypatch.setattr(submit_once, "FIND_PAUSES_S", (0.0,))


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("found", [JobId("17"), None])
def test_a_job_whose_answer_was_lost_is_looked_for(tmp_path, monkeypatch, found):
    """And a result that lies there of a job with the same number is none of it."""

    def lose(*_, **__):
        raise LOST

    monkeypatch.setattr(sbatch_command, "submit", lose)
    monkeypatch.setattr(queries, "find_job", lambda **_: found)
    made = executor(tmp_path / "logs")
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "17_0_result.pkl").touch()
    if found:
        job = made.submit(max, 1, 2)
        assert (job.job_id, job.paths.result_pickle.exists()) == ("17", False)
    else:
        with pytest.raises(LostAnswerError):
            made.submit(max, 1, 2)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("folder", ["logs", "logs/%j"])
def test_the_job_of_another_executor_is_not_taken_for_the_one_that_was_lost(tmp_path, monkeypatch, folder):
    """Two that ask for the same have the same script."""
    known = []

    def lose(*_, **__):
        raise LOST

    def find(**asked):
        known.extend(asked["known"])

    monkeypatch.setattr(sbatch_command, "submit", lambda *_, **__: (JobId("17"), ""))
    executor(tmp_path / folder).submit(max, 1, 2)
    monkeypatch.setattr(sbatch_command, "submit", lose)
    monkeypatch.setattr(queries, "find_job", find)
    with pytest.raises(LostAnswerError):
        executor(tmp_path / folder).submit(max, 1, 2)
    assert set(known) == {"17"}


@pytest.mark.usefixtures("at_once")
def test_a_lost_answer_is_looked_for_and_asked_for_again(tmp_path, monkeypatch):
    """And what the job needs stays where it may have been accepted all the same."""
    lost = [True] * (submit_once.ATTEMPTS - 1) + [False] + [True] * submit_once.ATTEMPTS

    def submit(*_, **__):
        if lost.pop(0):
            raise LOST
        return JobId("17"), ""

    monkeypatch.setattr(sbatch_command, "submit", submit)
    monkeypatch.setattr(queries, "find_job", lambda **_: None)
    made = executor(tmp_path / "logs")
    assert made.submit(max, 1, 2).job_id == "17"
    with pytest.raises(LostAnswerError):
        made.submit(max, 1, 2)
    assert len(list((tmp_path / "logs").glob("*.0.pkl"))) == 1


def test_more_calls_than_an_array_may_have_make_several(tmp_path, monkeypatch):
    numbers = iter(range(1, 9))
    monkeypatch.setattr(executor_module, "query_cluster", lambda _: Cluster(max_array_size=600))
    monkeypatch.setattr(sbatch_command, "submit", lambda *_, **__: (JobId(str(next(numbers))), ""))
    jobs = executor(tmp_path / "logs").map_array(abs, range(1300))
    assert [job.job_id for job in jobs[599:601]] == ["1_599", "2_0"]
    assert jobs[-1].job_id == "3_99"
    assert header(jobs[-1].paths.submission_file.read_text())["array"] == "0-99%100"


def test_output_that_is_no_text_hides_none(tmp_path):
    job = Job(tmp_path, "1")
    job.paths.stderr.write_bytes(b"loss \xff\n")
    assert (job.stderr(), job.stdout()) == ("loss \ufffd\n", None)


def test_a_second_array_that_is_refused_leaves_word_of_the_first(tmp_path, monkeypatch):
    def submit(*_, **__):
        if made._numbers:
            raise ClusterError("sbatch refused the job: QOSMaxSubmitJobPerUserLimit")
        return JobId("17"), ""

    monkeypatch.setattr(executor_module, "query_cluster", lambda _: Cluster(max_array_size=1001))
    monkeypatch.setattr(sbatch_command, "submit", submit)
    made = executor(tmp_path / "logs")
    with pytest.raises(ClusterError, match=r"QOSMax.*; the first 1001 calls are queued, as \['17'\]"):
        made.map_array(abs, range(1002))
    assert not list((tmp_path / "logs").glob("?" * 32 + ".*"))


def test_the_accounting_is_asked_where_there_is_one(monkeypatch):
    """A stand-in for a cluster with slurmdbd that has forgotten its jobs otherwise."""

    def ask(command, *_, **__):
        said = "JobID|State|Submit|Reason\n5_1|TIMEOUT|2026-11-21T00:00:00|None\n" if command[0] == "sacct" else ""
        return Answer(0 if said else 1, said, "" if said else "error: Invalid job id specified")

    monkeypatch.setattr(client, "ask", ask)
    assert query_states(["5_1", "6"]) == {"5_1": "TIMEOUT", "6": GONE}
    monkeypatch.setattr(client, "ask", lambda *_, **__: Answer(1, "", "squeue: error: no"))
    with pytest.raises(ClusterError, match=r"does not answer \(no\)"):
        query_states(["1"])


if __name__ == "__main__":
    GOLDEN.write_text(golden())

"""One start of the ranks: ports, threads, records, and what the environment tells of the job."""

import os
import socket
from pathlib import Path

import pytest

from slurmddp import variables
from slurmddp.batch import attempt
from slurmddp.batch.attempt import Job, choose_ports, is_port_free
from slurmddp.runs.checkpoints import find_saved, read_progress_mark
from slurmddp.runs.files import append_record
from slurmddp.runs.layout import RunDir

ENVIRON = {
    variables.JOB_ID: "17_3",
    variables.HOSTS: "n1\nn2",
    "MASTER_ADDR": "n1",
    "SLURM_JOB_ID": "20",
    "SLURM_JOB_NODELIST": "n[1-2]",
    "SLURM_NTASKS_PER_NODE": "4",
    "SLURMD_NODENAME": "n1",
    "SLURM_CLUSTER_NAME": "c",
    "SLURM_RESTART_COUNT": "2",
}


def job(tmp_path: Path, **environ: str) -> Job:
    return Job.read(ENVIRON | environ, tmp_path)


def test_the_environment_tells_of_the_job(tmp_path):
    found = job(tmp_path)
    assert (found.job_id, found.number, found.restarts, found.hosts) == ("17_3", 20, 2, ("n1", "n2"))
    assert found.world_size == 8  # SLURM_NTASKS is missing with --ntasks-per-node until Slurm 23.02.5
    assert job(tmp_path, SLURM_NTASKS="6").world_size == 6


@pytest.mark.parametrize("job_id", ["8", "08", "0089", "1200089", "4294967294"])
def test_ports_are_in_the_range_for_any_job_id(tmp_path, job_id):
    chosen = choose_ports(job(tmp_path, SLURM_JOB_ID=job_id), 0, (21000, 21099), lambda _: True)
    assert chosen[0] >= 21000 and chosen[1] == chosen[0] + 1 <= 21099


def test_ports_differ_by_job_and_by_attempt(tmp_path):
    jobs = [job(tmp_path, SLURM_JOB_ID=number, SLURM_RESTART_COUNT=count) for number in "56" for count in "01"]
    chosen = {choose_ports(one, number, (21000, 21099), lambda _: True) for one in jobs for number in (0, 1)}
    assert len(chosen) == 8


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize(("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_a_taken_port_is_passed_over(tmp_path, which, family, address):
    def choose() -> tuple[int, int]:
        return choose_ports(job(tmp_path), 0, (21000, 21099), is_port_free)

    wanted = choose()
    with socket.socket(family) as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind((address, wanted[which]))
        holder.listen()
        assert choose()[0] == wanted[0] + 2


def test_where_all_ports_are_taken_the_ranks_are_to_say_so(tmp_path):
    first, second = choose_ports(job(tmp_path), 0, (21000, 21003), lambda _: False)
    assert (first, second) in ((21000, 21001), (21002, 21003))


@pytest.mark.parametrize(
    ("cores", "asked", "threads"), [(64, "8", 8), (2, "8", 1), (8, "8", 4), (1, "8", 1), (64, "", 1)]
)
def test_a_rank_has_no_more_threads_than_its_share_of_the_cores(tmp_path, monkeypatch, cores, asked, threads):
    """Of two ranks a node; a Slurm may claim CPUs that its machine has not, as that of a sandbox does."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(cores))
    two = job(tmp_path)._replace(ranks_per_node=2)
    assert attempt.count_threads(two, {"SLURM_CPUS_PER_TASK": asked}) == threads


RECORDS = {
    "done": ({0: "0 done"}, 143, 0, "done"),
    "done, though a rank failed later": ({0: "0 done", 1: "76 rank 1 on n2: x"}, 9, 0, "done"),
    "77 beats 76": ({1: "76 rank 1 on n2: x", 2: "77 rank 2 on n2: y"}, 1, 77, "rank 2 on n2: y; see "),
    "78 beats 77": ({1: "77 rank 1 on n2: x", 2: "78 rank 2 on n2: y"}, 1, 78, "rank 2 on n2: y; see "),
    "only rank 0 may say 75": (
        {1: "75 rank 1 on n2: x"},
        5,
        5,
        "no rank left a record of its end, as after kill -9; the status is srun's",
    ),
    "a rank that lost others names them first": (
        {1: "76 rank 1 on n2: x"},
        1,
        76,
        "no record of ranks 0,2-7; rank 1 on n2: x",
    ),
    "not after an error of the program": (
        {1: "77 rank 1 on n2: x"},
        1,
        77,
        "1.out; no record of ranks 0,2-7",
    ),
    "a torn record": ({0: ""}, 5, 5, "no rank left a record of its end, as after kill -9; the status is srun's"),
    "no record": ({}, 5, 5, "no rank left a record of its end, as after kill -9; the status is srun's"),
    "srun is content, and no rank has begun": (
        {},
        0,
        76,
        "no rank has begun; srun says why, above, unless the launch block of a template starts none",
    ),
}


@pytest.mark.parametrize("name", RECORDS)
def test_the_records_decide(tmp_path, name):
    records, launcher_status, status, reason = RECORDS[name]
    folder = RunDir(tmp_path).attempt("17_3", "2.0")
    folder.mkdir(parents=True)
    for rank, line in records.items():
        (folder / f"{rank}.end").write_text(line + ("\n" if line else ""))
    ending = attempt.read_result(job(tmp_path), "2.0", launcher_status)
    assert ending.status == status
    assert reason in ending.reason


def test_of_a_script_of_the_users_own_no_file_of_a_rank_is_named(tmp_path):
    folder = RunDir(tmp_path).attempt("17_3", "2.0")
    folder.mkdir(parents=True)
    (folder / "1.end").write_text("77 rank 1 on n2: exit status 2\n")
    assert attempt.read_result(job(tmp_path), "2.0", 2).reason.startswith("rank 1 on n2: exit status 2; see ")
    own = attempt.read_result(job(tmp_path), "2.0", 2, own_launch=True)
    assert own.reason == "rank 1 on n2: exit status 2; no record of ranks 0,2-7"


@pytest.mark.parametrize(("status", "result"), [(3, 77), (75, 77), (76, 76), (137, 137)])
def test_a_line_before_the_ranks_ends_the_job_unless_it_asks_for_another_start_or_is_killed(tmp_path, status, result):
    record = job(tmp_path).run.before_ranks_record("17_3", "2.0")
    record.parent.mkdir(parents=True)
    record.write_text(f"{status} --before-ranks ended with status {status} on n1: x\n")
    assert attempt.read_result(job(tmp_path), "2.0", 1) == (
        result,
        f"--before-ranks ended with status {status} on n1: x",
    )


def test_srun_is_content_and_all_had_met(tmp_path):
    run = RunDir(tmp_path)
    run.attempt("17_3", "2.0").mkdir(parents=True)
    run.rank_begin("17_3", "2.0", 0).touch()
    assert attempt.read_result(job(tmp_path), "2.0", 0).status == 0


def begin_attempts(tmp_path, *names: str) -> None:
    """Leave attempts of the job whose ranks have met."""
    run = RunDir(tmp_path)
    for name in names:
        run.attempt("17_3", name).mkdir(parents=True)
        run.rank_begin("17_3", name, 0).touch()
        os.utime(run.rank_begin("17_3", name, 0), (1000, 1000))


def save(path, at: float) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    os.utime(path, (at, at))
    os.utime(path.parent, (0, 0))


def resume(tmp_path, attempt_name: str, pattern: str = "") -> dict[str, str]:
    RunDir(tmp_path).attempt("17_3", attempt_name).mkdir(parents=True, exist_ok=True)
    values = attempt.build_resume_variables(job(tmp_path), attempt_name, pattern)
    assert values.pop("SLURMDDP_CHECKPOINT_DIR") == str(tmp_path / "checkpoints")
    return values


def test_a_program_resumes_from_its_second_start_on(tmp_path):
    assert resume(tmp_path, "0.0") == {"SLURMDDP_RESTARTS": "0"}
    assert resume(tmp_path, "0.1") == {"SLURMDDP_RESTARTS": "1"}, "the ranks of 0.0 had not met"
    begin_attempts(tmp_path, "1.0")
    assert resume(tmp_path, "0.1") == {"SLURMDDP_RESTARTS": "1"}, "1.0 is later"
    assert resume(tmp_path, "2.0") == {"SLURMDDP_RESTARTS": "3", "SLURMDDP_RESUME": "1"}


def test_with_checkpoints_it_resumes_only_from_one_that_this_job_has_written(tmp_path):
    begin_attempts(tmp_path, "0.0", "0.1")
    pattern = str(tmp_path / "own" / "*")
    assert resume(tmp_path, "1.0", pattern) == {"SLURMDDP_RESTARTS": "2"}
    save(tmp_path / "own" / "z.pt", 999)
    assert resume(tmp_path, "1.0", pattern) == {"SLURMDDP_RESTARTS": "2"}
    save(tmp_path / "own" / "folder" / "shard", 2000)
    save(tmp_path / "own" / "b.pt", 1500)
    newest = str(tmp_path / "own" / "folder")
    assert resume(tmp_path, "1.0", pattern) == {
        "SLURMDDP_RESTARTS": "2",
        "SLURMDDP_RESUME": "1",
        "SLURMDDP_CHECKPOINT": newest,
    }


def test_a_later_job_of_a_chain_resumes(tmp_path):
    begin_attempts(tmp_path, "0.0")
    run = RunDir(tmp_path)
    (run.logs / "17_3").rename(run.logs / "15")
    run.attempt("17", "0.0").mkdir(parents=True)
    chained = job(tmp_path)._replace(job_id="17")
    assert "SLURMDDP_RESUME" not in attempt.build_resume_variables(chained, "0.0", "")
    for job_id, after in (("15", None), ("16", "15"), ("17", "16")):
        append_record(run.submissions, {"job": job_id, "after": after})
    values = attempt.build_resume_variables(chained, "0.0", "")
    assert (values["SLURMDDP_RESTARTS"], values["SLURMDDP_RESUME"]) == ("1", "1")


def test_before_the_first_checkpoint_only_what_survivors_have_saved_counts(tmp_path):
    """The file with the run's identity is made before any checkpoint."""
    run = job(tmp_path).run
    run.checkpoints.mkdir(parents=True)
    (run.checkpoints / "identity").write_text("0" * 32)
    assert find_saved(run, "") is None
    for name, step in (("17.0.1", 9), ("17.0.0", 31)):
        folder = run.checkpoints / f".survived-{name}" / f"step-{step:09d}"
        folder.mkdir(parents=True)
        assert step == 31 or find_saved(run, "") is None, "it is not whole"
        (folder / "survived.json").write_text("{}")
    saved = find_saved(run, "")
    assert (saved.step, saved.path) == (31, str(folder))
    (run.checkpoints / "model.pt").write_bytes(b"")
    assert find_saved(run, "").step == 31


def test_the_newest_checkpoint_is_the_highest_step_that_is_whole(tmp_path):
    run = RunDir(tmp_path)
    assert read_progress_mark(run) == "none"
    for name in ("step-000000009", "step-000000100", ".step-000000999", "broken-step-000000500", "step-1"):
        (run.checkpoints / name).mkdir(parents=True)
        (run.checkpoints / name / "manifest.json").touch()
    (run.checkpoints / "step-000000200").mkdir()
    assert read_progress_mark(run) == "step-000000100"


@pytest.mark.parametrize("instant", range(4))
def test_a_start_over_that_was_killed_is_finished_by_the_next(tmp_path, monkeypatch, instant):
    """`instant` is the number of the files that were moved by then; the last rename names the folder."""
    run, files = RunDir(tmp_path), ("checkpoints/step-000000005", "model.pt", "tracker-id")
    for name in files:
        (tmp_path / name).mkdir(parents=True)
    rename, done = os.rename, []

    def killed(*paths):
        if len(done) == instant:
            raise KeyboardInterrupt
        done.append(rename(*paths))

    monkeypatch.setattr(os, "rename", killed)
    with pytest.raises(KeyboardInterrupt):
        attempt.reset_run(run, 1)
    monkeypatch.setattr(os, "rename", rename)
    assert attempt.reset_run(run, 1) == run.before_reset(1)
    assert all((run.before_reset(1) / name).is_dir() for name in files)
    assert [path.name for path in tmp_path.iterdir()] == ["before-reset-1"]
    assert attempt.reset_run(run, 1) is None

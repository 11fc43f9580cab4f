"""`slurmddp` alone: where you are, by the facts of `slurmddp status`."""

import pytest
from command_line import typed

from slurmddp.cli import overview, run_command_line
from slurmddp.cluster.partitions import Cluster
from slurmddp.monitoring.status import JobStatus
from slurmddp.outcome import Kind, Outcome
from slurmddp.runs.files import append_record
from slurmddp.runs.layout import RunDir
from slurmddp.slurm.states import outcome_of

FAILED = Outcome(kind=Kind.FAILED, status=77, state="FAILED", reason="ValueError: label 12")


def submit(folder, name, job, day):
    run = RunDir.named(str(folder / "jobs"), name)
    run.path.mkdir(parents=True)
    append_record(run.submissions, {"job": job, "time": f"2026-01-{day:02}T12:00:00+00:00"})


@pytest.fixture
def show(monkeypatch, tmp_path, capsys):
    """Return a function that runs `slurmddp` in a folder with one run for each given outcome, the newest first."""

    def run(*outcomes):
        names = {}
        for number, outcome in enumerate(outcomes):
            name, job = f"run{number}", str(100 - number)
            submit(tmp_path, name, job, 28 - number)
            names[job] = JobStatus(job_id=job, run=RunDir(tmp_path / "jobs" / name), name=name, outcome=outcome)
        found = {job: item._replace(meaning=item.outcome.reason) for job, item in names.items()}
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(overview, "query_cluster", lambda *_, **__: Cluster(name="hpc", version="24.11"))
        monkeypatch.setattr(overview, "query_targets", lambda targets, _: [[found[one.jobs[0]]] for one in targets])
        assert run_command_line([]) == 0
        return capsys.readouterr().out

    return run


def test_it_shows_the_cluster_the_runs_what_failed_last_and_what_to_type(show):
    said = show(outcome_of("RUNNING"), FAILED, FAILED)
    assert "cluster hpc, Slurm 24.11\n" in said
    assert [line.split()[0] for line in said.splitlines()[2:6]] == ["RUN", "run0", "run1", "run2"]
    assert "ValueError: label 12" in said and "failed last: run1; type: slurmddp diagnose run1\n" in said
    assert "next: slurmddp watch run0\n" in said


@pytest.mark.parametrize(
    ("outcome", "typed"),
    [
        (FAILED, "diagnose run0"),
        (outcome_of("PENDING"), "status run0"),
        (outcome_of("COMPLETED"), "report run0"),
        (outcome_of("CANCELLED"), "status run0"),
    ],
)
def test_the_next_line_is_for_the_newest_run(outcome, typed, show):
    said = show(outcome)
    assert f"next: slurmddp {typed}\n" in said and "failed last" not in said


def test_of_many_runs_the_newest_are_shown(show):
    said = show(*[outcome_of("COMPLETED")] * 11)
    assert "run9" in said and "run10" not in said and "older runs: slurmddp status\n" in said


@pytest.mark.parametrize(
    ("file", "typed_next"),
    [("job.toml", "submit job.toml"), ("main.py", "init main.py"), ("x", "init --example steps")],
)
def test_without_runs_it_names_the_first_step(file, typed_next, show, tmp_path):
    (tmp_path / file).touch()
    assert f"next: slurmddp {typed_next}\n" in show()


@pytest.mark.parametrize(
    ("files", "typed_next"),
    [
        (["data.py", "finetune.py"], "run finetune.py"),
        (["a.py", "train.py", "pretrain.py"], "run train.py"),
        (["my run.py"], "run 'my run.py'"),
        (["notes.txt"], "init --example steps"),
    ],
)
def test_without_a_cluster_the_script_that_is_there_is_named(files, typed_next, tmp_path):
    for name in files:
        (tmp_path / name).touch()
    assert f"next: slurmddp {typed_next}\n" in typed(cwd=tmp_path).stdout


def test_without_slurm_the_files_tell_the_states_and_slurm_is_asked_once(tmp_path):
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.py").touch()
    submit(tmp_path / "one", "a", "17", 1)
    done = typed(cwd=tmp_path / "one")
    assert (done.returncode, done.stderr) == (0, "")
    assert "scontrol was not found; log in to a cluster, try `slurmddp sandbox up`" in done.stdout
    assert "a    17   UNKNOWN" in done.stdout and "next: slurmddp status a\n" in done.stdout
    assert "next: slurmddp run train.py\n" in typed(cwd=tmp_path / "other").stdout


def test_on_a_cluster_it_shows_what_status_shows(cli, slurm):
    job = cli("submit", "--hold", "--nodes", "1", "--gpus-per-node", "1").stdout.strip()
    table, said = cli("status").stdout, cli().stdout
    slurm("scancel", job)
    assert table in said and "next: slurmddp status mnist\n" in said


def test_slurm_is_found_by_the_systems_path_where_the_variable_is_not_set(show, monkeypatch):
    monkeypatch.delenv("PATH")
    assert "next: slurmddp init --example steps\n" in show()

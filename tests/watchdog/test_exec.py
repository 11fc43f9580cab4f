"""`slurmddp exec` runs a command beside a rank: as that rank, and nothing of it is read by a shell."""

import os
import signal
import subprocess
import sys

import pytest
from command_line import SLURMDDP, on_a_terminal
from polling import until
from standing import LAUNCHERS, PROGRAM, Standing

HOSTILE = ["a b", "$(touch x)", "`touch x`", "'", '"', "*", "\\", "-n", "--", "", "é"]
PRINT = """
import os, sys
print(*map(os.environ.get, ("RANK", "LOCAL_RANK", "SLURMD_NODENAME")), os.getcwd(), sys.argv[1:])
"""


@pytest.mark.parametrize("standing", LAUNCHERS, indirect=True)
def test_a_command_runs_as_the_rank_and_gets_its_words(standing):
    said, _ = standing.type("exec", standing.name, "--rank", "3", "--", sys.executable, "-c", PRINT, *HOSTILE)
    assert said == f"3 1 n2 {standing.root} {HOSTILE}\n"
    assert not (standing.root / "x").exists()


@pytest.mark.parametrize("standing", ["srun"], indirect=True)
def test_what_a_command_reads_and_how_it_ends(standing):
    words = ("--node", "n2", "--", "sh", "-c", "cat; echo $RANK; exit 7")
    said, _ = standing.type("exec", standing.job, *words, status=7, stdin="in\n")
    assert said == "in\n2\n"
    assert standing.type("exec", standing.name, "printenv", "RANK")[0] == "0\n"
    assert "Error: no-such: No such file" in standing.type("exec", standing.name, "no-such", status=127)[1]
    assert standing.type("exec", standing.name, stdin="echo $LOCAL_RANK\n", SHELL="/bin/sh")[0] == "0\n"
    status, seen = on_a_terminal(SLURMDDP, "exec", standing.job, "--", "tty", cwd=standing.root, **standing.environ)
    assert status == 0 and seen.startswith(b"/dev/pts/"), seen


@pytest.mark.parametrize("standing", ["srun"], indirect=True)
@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["--rank", "9"], 2, "Error: job {job} has no rank of number 9; it has 0, 1, 2, 3\n"),
        (["--node", "n9"], 2, "Error: --node 'n9' is no node of job {job}; it has n1, n2\n"),
        (["--node", "n1", "--rank", "0"], 2, "Error: --rank cannot be combined with --node; give one of them\n"),
    ],
)  # fmt: skip
def test_a_rank_or_node_that_is_not_there_is_one_line(standing, words, status, said):
    assert standing.type("exec", standing.name, *words, "--", "true", status=status)[1] == said.format(job=standing.job)


@pytest.mark.parametrize("standing", ["srun"], indirect=True)
def test_where_no_step_may_stand_beside_the_ranks_ssh_is_named(standing, tmp_path):
    (tmp_path / "srun").write_text("#!/bin/sh\necho 'srun: unrecognized option --overlap' >&2\nexit 1\n")
    (tmp_path / "srun").chmod(0o755)
    path = f"{tmp_path}:{standing.environ['PATH']}"
    for words in (["stacks", standing.name], ["exec", standing.name, "--", "echo", "a b"]):
        _, said = standing.type(*words, status=3, PATH=path)
        assert "on n1 (srun: unrecognized option --overlap); where you may log in to n1, type: ssh -t n1 '" in said
        assert len(said.splitlines()) == 1
    assert "slurmddp.watchdog.beside" in said and "a b" in said


@pytest.mark.parametrize("command", ["stacks", "exec"])
def test_jobs_that_cannot_be_looked_into_are_one_line(cli, slurm, command):
    plain = slurm("sbatch", "--parsable", "--hold", "--wrap=true").strip()
    cli("submit", "--name=waits", "--hold", "--nodes=1", __file__)
    for word, status, said in (
        (plain, 1, f"job {plain} is PENDING; a job has ranks only while it runs"),
        ("waits", 1, "is PENDING; a job has ranks only while it runs"),
        ("99999999", 3, "the state of job 99999999 is not known: "),
        ("nothing", 2, "'nothing' is not a job id, nor a submitted run"),
    ):
        done = cli(command, word, status=status)
        assert said in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr
    slurm("scancel", plain)
    cli("cancel", "waits")


@pytest.mark.skipif(os.geteuid() != 0, reason="to submit as another user takes root")
@pytest.mark.parametrize("command", ["stacks", "exec"])
def test_a_job_of_somebody_else_is_refused(cli, slurm, command):
    job = slurm("sbatch", "--parsable", "--hold", "--uid=nobody", "--chdir=/", "--wrap=true").strip()
    said = cli(command, job, status=3).stderr
    assert said == f"Error: job {job} is of nobody; you can look into your own jobs alone\n"
    slurm("scancel", job)


def test_a_run_on_this_machine_is_looked_into_without_slurm(tmp_path):
    words = [SLURMDDP, "run", "--name=here", "--ntasks-per-node=2", PROGRAM]
    here = Standing("here", "", tmp_path, {**os.environ, "OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"})
    with subprocess.Popen(words, cwd=tmp_path, env=here.environ, stderr=subprocess.DEVNULL) as process:
        try:
            until((tmp_path / "jobs" / "here" / "fifo").exists, 200, pause_s=0.2)
            until(lambda: "all_reduce()" in here.type("stacks", "here")[0])
            rows = [line.split() for line in here.type("stacks", "here")[0].splitlines()[1:]]
            assert [(row[0], row[2]) for row in rows] == [("0", "all_reduce()"), ("1", "open()")]
            said, _ = here.type("exec", "here", "--rank=1", "--", "sh", "-c", "pwd; exit $RANK", status=1)
            assert said == f"{tmp_path}\n"
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)
    assert "is STOPPED; a job has ranks only while it runs" in here.type("stacks", "here", status=1)[1]

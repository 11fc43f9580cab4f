"""A user's own script goes on in its own shell: the launch has its variables, status, input and signals."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from slurmddp import variables
from slurmddp.batch.shell_launch import format_start
from slurmddp.config.batch_script import parse_batch_script
from slurmddp.config.job_spec import JobSpec
from slurmddp.runs.files import read_records
from slurmddp.runs.layout import RunDir
from slurmddp.script.build import build_script

SHELLS = [pytest.param(name, marks=pytest.mark.skipif(not shutil.which(name), reason=f"no {name}"))
          for name in ("bash", "dash", "ksh", "mksh")]  # fmt: skip
SCONTROL = """#!/bin/sh
case "$*" in
  *"show hostnames"*) echo n1 ;;
  *"show job"*) echo "JobId=7 JobName=x UserId=u(1) JobState=RUNNING Requeue=1 Restarts=0 BatchHost=n1" ;;
  *"show node"*) echo "NodeName=n1 NodeAddr=10.0.0.1" ;;
esac
"""


class Bench:
    """A folder with stand-ins for scontrol and sinfo, where rendered scripts run as batch scripts do."""

    def __init__(self, folder: Path) -> None:
        self.folder = self.working_folder = folder
        (folder / "bin").mkdir()
        for name, text in (("scontrol", SCONTROL), ("sinfo", "#!/bin/sh\n"), ("srun", '#!/bin/sh\nexec "$@"\n')):
            (folder / "bin" / name).write_text(text)
            (folder / "bin" / name).chmod(0o755)
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "TMPDIR"))}
        job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1", "SLURMD_NODENAME": "n1", "SLURM_NTASKS": "1"}
        self.environ = {**clean, **job, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}

    def start(self, body: str, *words: str, shell: str = "bash", **values) -> "subprocess.Popen[str]":
        own = parse_batch_script("x.sbatch", f"#!/bin/{shell}\n{body}\n".encode())
        values.setdefault("launch_line", body[: body.find("srun")].count("\n") + 2)
        text = build_script(JobSpec(job_name="x", command=("x.sbatch",), script=own, **values)).text
        (self.folder / "rendered").write_bytes(text)
        with (self.folder / "out").open("a") as out:
            return subprocess.Popen(
                [shell, self.folder / "rendered", *words], cwd=self.working_folder, env=self.environ,
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, text=True,
            )  # fmt: skip

    def run(self, body: str, *words: str, shell: str = "bash", **values) -> tuple[int, str]:
        """Return the status and the output without the supervisor's own lines."""
        status = self.start(body, *words, shell=shell, **values).wait(60)
        own = (line for line in self.output if " slurmddp: " not in line and " Killed " not in line)  # bash says that
        return status, "".join(own)

    @property
    def output(self) -> list[str]:
        return (self.folder / "out").read_text().splitlines(keepends=True)

    @property
    def kept(self) -> RunDir:
        return RunDir(self.folder / "jobs" / "x")

    @property
    def events(self) -> list[str]:
        return [event["event"] for event in read_records(self.kept.events)]

    def wait_for(self, text: str) -> None:
        until = time.monotonic() + 30
        while text not in "".join(self.output):
            assert time.monotonic() < until, "".join(self.output)
            time.sleep(0.05)


@pytest.fixture
def bench(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Bench(tmp_path)


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("settings", ["", "set -eu"])
def test_the_status_the_variables_the_arguments_and_the_input_are_those_of_the_line(bench, shell, settings):
    body = f"""{settings}
word='a  b'
say() {{ echo "said $1"; }}
trap 'echo "bye $?"' EXIT
echo hello >in
srun sh -c 'read -r x; echo "$x" "$0" "$1" "$SLURMDDP_ATTEMPT"; exit 3' "$1" "$word" <in || status=$?
say "$status"
[ -z "${{SLURMDDP_ATTEMPT:-}}" ] && echo "nothing stays"
exit 5"""
    assert bench.run(body, "first one", shell=shell) == (
        5,
        "hello first one a  b 0.0\nsaid 3\nnothing stays\nbye 5\n",
    )
    assert bench.events == ["attempt_start", "attempt_end", "job_end"]
    assert os.path.realpath(bench.kept.batch_log("7")) == str(bench.folder / "out")


TRACED = "+ slurmddp_run\n+ slurmddp_supervise\n+ slurmddp_launch\n+ srun echo x.py\nx.py\n"
LINES = {
    "a status is kept": ("srun sh -c 'exit 7'\necho $?", "7\n", 0),
    "a status ends a script under -e": ("set -e\nsrun sh -c 'exit 7'\necho not here", "", 7),
    "exec is the end": ("exec srun sh -c 'echo x; exit 7'\necho not here", "x\n", 7),
    "in a pipe": ("srun echo x.py | sed s/x/y/", "y.py\n", 0),
    "in a condition": ("if ! srun false x.py; then echo no; fi", "no\n", 0),
    "in the background": ("srun sh -c 'exit 4' &\nwait $!\necho $?", "4\n", 0),
    "behind a redirection": ("srun sh -c 'echo a; exit 2' >file.txt\necho $? $(cat file.txt)", "2 a\n", 0),
    "in a function": ('go() { srun echo "$1" x.py; }\ngo 1', "1 x.py\n", 0),
    "a loop over nodes": ("for n in 1 2; do srun sh -c 'echo x' & done\nwait\necho $?", "x\nx\n0\n", 0),
    "with a file as its input": ("srun cat - x.txt <<EOF\nhere $HOME_OF\nEOF\necho $?", "here me\n0\n", 0),
    "traced": ("set -x\nsrun echo x.py\n{ set +x; } 2>/dev/null", TRACED, 0),
    "with all options of bash": ("set -Eeuo pipefail\ntrap 'echo err' ERR\nIFS=,\nsrun echo x.py", "x.py\n", 0),
    "several in a row": ("for n in 1 2; do srun echo $n x.py; done", "1 x.py\n2 x.py\n", 0),
}  # fmt: skip


@pytest.mark.parametrize("name", LINES)
def test_what_stands_around_the_launch_keeps_its_meaning(bench, name):
    body, said, status = LINES[name]
    (bench.folder / "x.txt").write_text("")
    bench.environ["HOME_OF"] = "me"
    assert bench.run(f"{body}\n") == (status, said)


def test_the_run_of_a_script_that_works_elsewhere_is_where_it_was_submitted(bench):
    bench.working_folder = bench.folder / "elsewhere"
    bench.working_folder.mkdir()
    bench.environ["SLURM_SUBMIT_DIR"] = str(bench.folder)
    assert bench.run("#SBATCH --chdir=elsewhere\nset -u\nsrun sh -c 'pwd x.py'") == (0, f"{bench.working_folder}\n")
    assert bench.events == ["attempt_start", "attempt_end", "job_end"]
    assert not list(bench.working_folder.iterdir())


@pytest.mark.parametrize("shell", SHELLS)
def test_a_file_of_its_own_for_errors_is_known_to_the_run(bench, shell):
    bench.run("srun echo x.py", shell=shell)
    assert not os.path.lexists(bench.kept.batch_errors("7"))
    with (bench.folder / "out").open("a") as out, (bench.folder / "err").open("a") as err:
        subprocess.run([shell, "rendered"], cwd=bench.folder, env=bench.environ, stdout=out, stderr=err, check=True)
    assert os.path.realpath(bench.kept.batch_log("7")) == str(bench.folder / "out")
    assert os.path.realpath(bench.kept.batch_errors("7")) == str(bench.folder / "err")


def test_each_turn_of_a_loop_is_an_attempt(bench):
    bench.run("for n in 1 2 3; do srun echo $n x.py; done")
    assert bench.kept.attempts("7") == ["0.0", "0.1", "0.2"]


AS_A_TASK = {"SLURM_STEP_ID": "0", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0"}
TRAINS = """
import os, sys
print(sys.argv[1], os.environ.get("WANDB_RUN_ID", "none")[:4], os.environ.get("SLURMDDP_RESUME", "new"))
"""


def test_another_turn_of_a_loop_is_another_training(bench):
    """It resumes nothing, and is a run of its own for wandb."""
    (bench.folder / "a.py").write_text(TRAINS)
    bench.environ |= AS_A_TASK
    body = f"for n in 1 2; do srun {sys.executable} a.py $n; done"
    assert bench.run(body, launch_line=2) == (0, "1 none new\n2 none new\n")


def test_a_requeue_leaves_no_turn_of_a_loop_out(bench):
    (bench.folder / "a.py").write_text(TRAINS)
    bench.environ |= AS_A_TASK | {"LAST": "1"}
    body = f"for n in 1 2 3; do srun {sys.executable} a.py $n; [ 0$n != 0$LAST ] || exit; done"
    bench.run(body, launch_line=2)
    bench.environ |= {"LAST": "", "SLURM_RESTART_COUNT": "1"}
    (bench.folder / "bin" / "scontrol").write_text(SCONTROL.replace("Restarts=0", "Restarts=1"))
    bench.run(body, launch_line=2)
    assert [line[:2] for line in bench.output if " slurmddp: " not in line] == ["1 ", "1 ", "2 ", "3 "]


def test_ranks_that_were_killed_are_started_again_and_the_script_sees_the_last_status(bench):
    body = "srun sh -c 'echo start; [ $SLURMDDP_ATTEMPT = 0.2 ] && exit 0; kill -9 $$'\necho $?"
    assert bench.run(body) == (0, "start\nstart\nstart\n0\n")
    assert bench.events.count("attempt_start") == 3 and bench.events.count("restart") == 2


def test_a_launch_that_fails_after_its_ranks_have_ended_has_failed(bench):
    """It may be a wrapper that copies the results; the training is done, and the job is not."""
    done = 'echo "0 done" >"$SLURMDDP_ATTEMPT_DIR/0.end"; exit 3'
    assert bench.run(f"srun sh -c '{done}' x.py\necho $?") == (0, "3\n")
    (end,) = [event for event in read_records(bench.kept.events) if event["event"] == "attempt_end"]
    assert (end["status"], "status 3, although rank 0 has recorded its end" in end["reason"]) == (77, True)


def test_a_record_of_the_ranks_counts_more_than_the_status(bench):
    retry = 'echo "76 rank 0 on n1: lost" >"$SLURMDDP_ATTEMPT_DIR/0.end"; exit 1'
    body = f"srun sh -c 'echo start; [ $SLURMDDP_ATTEMPT = 0.1 ] && exit 0; {retry}'\necho $?"
    assert bench.run(body) == (0, "start\nstart\n0\n")


@pytest.mark.parametrize("status", [1, 75, 76, 78, 127])
def test_a_status_without_records_is_judged_as_by_sbatch(bench, status):
    assert bench.run(f"srun sh -c 'exit {status}' x.py\necho $?") == (0, f"{status}\n")
    assert bench.events.count("attempt_start") == 1


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("name", ["TERM", "USR1"])
def test_a_signal_that_the_script_sends_to_its_launch_reaches_it(bench, shell, name):
    """The launch that handles it ends as it wants; one that does not is not started again."""
    body = f"""
trap 'kill -{name} $pid; wait $pid; echo "ended $?"; exit 0' HUP
srun sh -c 'trap "echo heard; exit 9" {name}; echo ready; while :; do sleep 0.1; done' &
pid=$!
wait $pid"""
    process = bench.start(body, shell=shell)
    bench.wait_for("ready")
    process.send_signal(signal.SIGHUP)
    assert process.wait(30) == 0
    assert "".join(bench.output).count("ready") == 1 and "heard\n" in bench.output and "ended 9\n" in bench.output


def test_a_launch_that_the_script_kills_is_not_started_again(bench):
    process = bench.start(
        "trap 'kill $pid' HUP\nsrun sh -c 'echo ready; exec sleep 60' &\npid=$!\nwait $pid\nwait $pid\necho $?"
    )
    bench.wait_for("ready")
    process.send_signal(signal.SIGHUP)
    assert process.wait(30) == 0
    assert "143\n" in bench.output and bench.events.count("attempt_start") == 1


@pytest.mark.parametrize("status", [0, 3])
def test_a_launch_whose_supervisor_dies_ends_with_its_own_status(bench, status):
    process = bench.start(f"srun sh -c 'echo ready; sleep 1; exit {status}' x.py\necho $?")
    bench.wait_for("ready")
    found = subprocess.run(
        ["pgrep", "-P", _child(process.pid), "-f", "slurmddp.batch"], capture_output=True, text=True, check=True
    )
    os.kill(int(found.stdout.split()[0]), signal.SIGKILL)
    assert process.wait(30) == 0
    assert bench.output[-2:] == ["slurmddp: the supervisor has ended by itself\n", f"{status}\n"]


def test_a_supervisor_that_dies_before_a_start_is_told(bench):
    assert bench.run("srun echo x.py\necho $?", supervisor_python="false") == (
        0,
        "slurmddp: the supervisor has ended by itself\n75\n",
    )


def _child(pid: int) -> str:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0]


def test_an_interrupt_is_not_ignored_by_the_launch(bench):
    _, said = bench.run("srun grep SigIgn /proc/self/status")
    assert int(said.split()[-1], 16) & (1 << (signal.SIGINT - 1)) == 0


def test_the_order_of_a_start_is_one_line_and_quoted():
    line = format_start({"A": "1", "B": "it's $(x)", "SAME": "y", "C": "two\nlines"}, {"SAME": "y", "A": "0"})
    assert line.endswith("export A=1 B='it'\"'\"'s $(x)'")
    assert variables.RESUME in line.partition(";")[0] and "\n" not in line


def test_another_users_folder_is_not_written_to(bench):
    (bench.folder / "jobs" / "x").mkdir(parents=True)
    os.chown(bench.folder / "jobs" / "x", 12345, -1)
    assert bench.run("srun echo x.py") == (77, "")
    assert not (bench.folder / "jobs" / "x" / "logs").exists()


def requeue(bench: Bench, restarts: int) -> None:
    """Let the next start of a script be that after a requeue."""
    bench.environ["SLURM_RESTART_COUNT"] = str(restarts)
    (bench.folder / "bin" / "scontrol").write_text(SCONTROL.replace("Restarts=0", f"Restarts={restarts}"))
    (bench.folder / "out").unlink()


TRAINING = """state=${SLURMDDP_CHECKPOINT_DIR:?}/last
echo "$LR:$(cat $state 2>/dev/null || echo nothing) restarts=$SLURMDDP_RESTARTS"
echo "state of $LR" >$state
[ ! -e fails ] || { rm fails; exit 1; }
"""
GO = "go() {\n[ -e skip.$LR ] ||\nsrun sh train.sh\n}\n"
LOOPS = {
    "for": "for LR in 1 2; do export LR; [ -e skip.$LR ] ||\nsrun sh train.sh\ndone",
    "a word": "for lr in 1 2; do [ -e skip.$lr ] ||\nsrun env LR=$lr sh train.sh\ndone",
    "read": "printf '1\\n2\\n' | while read -r LR; do export LR; [ -e skip.$LR ] ||\nsrun sh train.sh </dev/null\ndone",
    "count": "LR=0; while [ $LR -lt 2 ]; do LR=$((LR+1)); export LR; [ -e skip.$LR ] ||\nsrun sh train.sh\ndone",
    "function": "go() { export LR=$1; [ -e skip.$LR ] ||\nsrun sh train.sh\n}\ngo 1\ngo 2",
    "between": f"{GO}export LR=1; go; export LR=2\ngo",
    "inherited": "for LR in 1 2; do [ -e skip.$LR ] ||\nsrun sh train.sh\ndone",
    "arithmetic": "for n in 0 1; do [ -e skip.$((n+1)) ] ||\nsrun env LR=$((n+1)) sh train.sh\ndone",
    "arguments": "set -- 1 2; while [ $# -gt 0 ]; do export LR=$1; [ -e skip.$LR ] ||\nsrun sh train.sh\nshift; done",
}


@pytest.mark.parametrize("shell", SHELLS[:2])
@pytest.mark.parametrize("loop", LOOPS.values(), ids=list(LOOPS))
def test_each_training_of_a_script_has_its_own_checkpoints(bench, loop, shell):
    (bench.folder / "train.sh").write_text(TRAINING)
    bench.environ["LR"] = "of the login shell"
    assert bench.run(loop, shell=shell)[1] == "1:nothing restarts=0\n2:nothing restarts=0\n"
    assert (bench.kept.checkpoints / "last").read_text() == "state of 1\n"
    requeue(bench, 1)
    said = bench.run(loop, shell=shell)[1]
    assert said == "1:state of 1 restarts=1\n2:state of 2 restarts=1\n"
    requeue(bench, 2)
    (bench.folder / "skip.1").touch()
    assert bench.run(loop, shell=shell)[1] == "2:state of 2 restarts=2\n"


@pytest.mark.parametrize(
    "loop",
    [
        "export LR=1; until\nsrun sh train.sh\ndo echo again; done",
        "export LR=1; for try in 1 2 3; do\nsrun sh train.sh && break\necho again; done",
        "export LR=1; n=0; while [ $n -lt 3 ]; do n=$((n+1))\nsrun sh train.sh && break\necho again; done",
    ],
    ids=["until", "tries", "count"],
)
def test_a_training_that_failed_and_is_started_again_by_its_script_goes_on(bench, loop):
    (bench.folder / "train.sh").write_text(TRAINING)
    (bench.folder / "fails").touch()
    assert bench.run(loop)[1] == "1:nothing restarts=0\nagain\n1:state of 1 restarts=1\n"


def test_trainings_that_nothing_tells_apart_never_go_on_from_one_another(bench):
    (bench.folder / "train.sh").write_text(TRAINING)
    loop = "export LR=x; while ls work.* >list 2>&1; do sh take.sh\nsrun sh train.sh\ndone"
    (bench.folder / "take.sh").write_text('rm "$(ls work.* | head -n 1)"\n')
    for name in "abc":
        (bench.folder / f"work.{name}").touch()
    assert bench.run(loop)[1] == "x:nothing restarts=0\n" * 3
    requeue(bench, 1)
    (bench.folder / "work.d").touch()
    assert bench.run(loop)[1].startswith("x:nothing ")


AT_ONCE = """[ $1 = 1 ] || [ $SLURMDDP_ATTEMPT != 0.0 ] || %s
echo "0 done" >"$SLURMDDP_ATTEMPT_DIR/0.end"
"""
WAITS = {
    "bare": "for n in 1 2; do srun sh train.sh $n & done\nwait",
    "named": 'for n in 1 2; do srun sh train.sh $n & pids="${pids:-} $!"; done\nwait $pids',
    "in batches": "for n in 1 2; do srun sh train.sh $n &\n[ $n = 1 ] || wait; done\nwait",
    "one by one": "for n in 2 1; do\nsrun sh train.sh $n & # the next\nwait $!; done\nwait",
    "each with its log": "set -u\nIFS=,\nfor n in 2 1; do srun sh train.sh $n >$n.log 2>&1 & done\nwait",
}  # fmt: skip


@pytest.mark.parametrize("shell", SHELLS[:2])
@pytest.mark.parametrize("loop", WAITS.values(), ids=list(WAITS))
def test_a_killed_training_among_those_that_a_loop_starts_at_once_is_started_again(bench, loop, shell):
    (bench.folder / "train.sh").write_text(AT_ONCE % "kill -9 $$")
    status, said = bench.run(f"{loop}\necho ended $?", shell=shell)
    assert (status, said.removeprefix("Killed\n")) == (0, "ended 0\n")  # dash says that
    assert bench.events == ["attempt_start", "attempt_end", "restart", "attempt_start", "attempt_end", "job_end"]


def test_a_killed_training_is_seen_through_a_pipe(bench):
    (bench.folder / "train.sh").write_text(AT_ONCE % "kill -9 $$")
    assert bench.run("for n in 2 1; do srun sh train.sh $n | cat & done\nwait")[0] == 0
    assert bench.events.count("attempt_start") == 2


@pytest.mark.parametrize("shell", SHELLS[:2])
@pytest.mark.parametrize("loop", WAITS.values(), ids=list(WAITS))
def test_a_failed_training_among_those_that_a_loop_starts_at_once_fails_the_launch(bench, loop, shell):
    (bench.folder / "train.sh").write_text(AT_ONCE % "exit 3")
    assert bench.run(loop, shell=shell) == (3, "")
    (end,) = [event for event in read_records(bench.kept.events) if event["event"] == "job_end"]
    assert end["status"] == 77 and bench.events.count("attempt_start") == 1

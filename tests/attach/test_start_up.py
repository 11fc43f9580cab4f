"""Which Python becomes a rank: the rule as a table, and real Pythons below a launch."""

import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import slurmddp
from slurmddp.attach import attach_variables
from slurmddp.runs.layout import RunDir

PACKAGE = Path(slurmddp.__file__).parent
SITE = PACKAGE / "attach" / "site"
TASK = {"SLURM_PROCID": "1", "SLURM_LOCALID": "1", "SLURM_NODEID": "0", "SLURM_NTASKS": "2", "SLURM_STEP_ID": "0"}
TASK |= {"SLURM_NNODES": "1", "SLURM_JOB_ID": "17", "SLURMD_NODENAME": "n1"}
ALONE = {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NTASKS": "1"}
TORCHRUN = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "4"}


@pytest.fixture(scope="module")
def start_up():
    spec = importlib.util.spec_from_file_location("start_up", SITE / "sitecustomize.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("typed", "environ", "role"),
    [
        ("python train.py --lr 1", TASK, "rank"),
        ("python -u -W ignore train.py", TASK, "rank"),
        ("python -m pkg.train", TASK, "rank"),
        ("python -um pkg.train", TASK, "rank"),
        ("python /env/bin/nequip-train -cn x", TASK, "rank"),
        ("python train.py", TORCHRUN, "rank"),
        ("python train.py", TASK | TORCHRUN, "rank"),
        ("python train.py", {"OMPI_COMM_WORLD_RANK": "0"}, "rank"),
        ("python train.py", {"SLURM_JOB_ID": "17"}, ""),
        ("python train.py", {"SLURM_JOB_ID": "17", "SLURM_PROCID": "0"}, ""),
        ("python /env/bin/torchrun --nnodes 2 train.py", TASK, "launcher"),
        ("python -m torch.distributed.run train.py", TASK, "launcher"),
        ("python -m torch.distributed.launch train.py", TASK, "launcher"),
        ("python /env/bin/accelerate launch train.py", TASK, "launcher"),
        ("python -u -m deepspeed.launcher.launch train.py", TASK, "launcher"),
        ("python -c pass", TASK, ""),
        ("python -c from.multiprocessing.spawn --multiprocessing-fork", TASK, ""),
        ("python - x", TASK, ""),
        ("python", TASK, ""),
        ("python -i train.py", TASK, ""),
        ("python -V", TASK, ""),
        ("python /env/bin/pip install x", TASK, ""),
        ("python -m pip install x", TASK, ""),
        ("python /opt/conda/bin/conda shell.posix activate x", TASK, ""),
        ("python app.pyz", TASK, ""),
    ],
)
def test_what_a_python_is_follows_from_its_environment_and_its_command_line(start_up, typed, environ, role):
    assert start_up.role_of(environ, typed.split()) == role


@pytest.mark.parametrize(
    ("typed", "options", "program"),
    [
        ("python -u -O train.py -m x", ["-u", "-O"], ["train.py", "-m", "x"]),
        ("python -X dev -Wignore -Bum pkg.train a", ["-X", "dev", "-Wignore", "-Bu"], ["-m", "pkg.train", "a"]),
        ("python -mpkg a", [], ["-m", "pkg", "a"]),
        ("python -uc pass", [], []),
        ("python --help", [], []),
    ],
)
def test_the_options_of_python_stay(start_up, typed, options, program):
    assert start_up.read_command(typed.split()) == (options, program)


def test_what_the_person_has_set_stays():
    given = {"PYTHONPATH": "/own", "BASH_ENV": "/own.sh", "SLURM_WAIT": "60"}
    found = attach_variables(given, Path("/p"))
    assert found["PYTHONPATH"] == "/p/attach/site:/own" and found["SLURMDDP_ATTACH_PYTHONPATH"] == "/own"
    assert found["SLURMDDP_ATTACH_BASH_ENV"] == "/own.sh"
    assert "SLURM_WAIT" not in found and found["SLURM_KILL_BAD_EXIT"] == "1"


PROGRAM = """
import json, os, signal, subprocess, sys
child = "import os, signal, sys; print('slurmddp' in sys.modules, signal.getsignal(signal.SIGUSR2) == signal.SIG_DFL)"
print(json.dumps({
    "argv": sys.argv, "file": __file__, "path": sys.path[0], "optimize": sys.flags.optimize, "pid": os.getpid(),
    "ours": sorted(name for name in os.environ if name.startswith("SLURMDDP_ATTACH")),
    "paths": [os.environ.get("PYTHONPATH"), os.environ.get("BASH_ENV")], "own site": os.environ.get("OWN_SITE"),
    "attached": "slurmddp.worker.entry" in sys.modules,
    "mark": [path for path in sys.path if path.endswith("attach/site")],
    "child": subprocess.run([sys.executable, "-c", child], capture_output=True, text=True).stdout,
}))
"""


@pytest.fixture
def launched(tmp_path):
    """Return a function that starts a Python as a task of srun would be started, below a launch of the supervisor."""
    run = RunDir(tmp_path / "run")
    run.attempt("17", "0.0").mkdir(parents=True)
    names = {"SLURMDDP_RUN_DIR": str(run.path), "SLURMDDP_JOB_ID": "17", "SLURMDDP_ATTEMPT": "0.0"}

    def start(*words, task=TASK, python=(sys.executable,), **more):
        clean = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        environ = clean | {"OMP_NUM_THREADS": "1"} | more
        environ |= attach_variables(environ, PACKAGE) | names | task
        return subprocess.Popen([*python, *words], env=environ, cwd=tmp_path, text=True, stdout=subprocess.PIPE)

    start.run = run
    return start


def test_a_rank_is_attached_and_its_program_sees_what_it_would_see(launched, tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("import os; os.environ['OWN_SITE'] = 'ran'")
    (tmp_path / "train.py").write_text(PROGRAM)
    process = launched("-O", "train.py", "--lr", "1", PYTHONPATH=str(own), BASH_ENV="/own.sh")
    seen = __import__("json").loads(process.communicate()[0])
    assert seen.pop("child") == "False True\n"
    assert seen == {
        "argv": ["train.py", "--lr", "1"], "file": str(tmp_path / "train.py"), "path": str(tmp_path), "optimize": 1,
        "pid": process.pid, "ours": [], "paths": [str(own), "/own.sh"], "own site": "ran", "attached": True, "mark": [],
    }  # fmt: skip
    assert launched.run.rank_begin("17", "0.0", 1).exists()


@pytest.mark.parametrize(
    ("program", "status", "record"),
    [
        ("raise ValueError('x')", 1, "77 rank 1 on n1: ValueError: x\n"),
        ("raise SystemExit(3)", 3, "77 rank 1 on n1: exit status 3\n"),
        ("raise ConnectionResetError('peer')", 1, "76 rank 1 on n1: ConnectionResetError: peer\n"),
        ("pass", 0, None),
    ],
)
def test_a_rank_leaves_its_record_and_the_programs_own_status(launched, tmp_path, program, status, record):
    (tmp_path / "train.py").write_text(program)
    path = launched.run.rank_record("17", "0.0", 1)
    path.write_text("77 rank 1 on n1: of an earlier Python of this task\n")
    process = launched("train.py")
    process.communicate()
    assert process.returncode == status
    assert (path.read_text() if path.exists() else None) == record


WRAPPER = """
python -c 'print("a helper")'
python train.py
echo "after $?"
"""


@pytest.mark.parametrize("number", [signal.SIGUSR2, signal.SIGTERM])
def test_a_signal_to_all_processes_of_the_task_ends_the_rank_and_not_the_shell_around_it(launched, tmp_path, number):
    (tmp_path / "train.py").write_text("import time\nprint('up', flush=True)\ntime.sleep(100)")
    (tmp_path / "run.sh").write_text(WRAPPER)
    environ = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    process = launched("run.sh", python=["bash"], task=TASK | ALONE, **environ)
    assert [process.stdout.readline() for _ in range(2)] == ["a helper\n", "up\n"]
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    for pid in (process.pid, *map(int, children)):
        os.kill(pid, number)
    assert process.communicate(timeout=60)[0].endswith("after 75\n")
    assert launched.run.rank_record("17", "0.0", 0).read_text().startswith("75 rank 0 on n1: stop signal received")


def test_a_launcher_passes_signals_on_to_its_ranks(launched, tmp_path):
    (tmp_path / "torchrun").write_text(
        "import os, subprocess, sys\n"
        "environ = os.environ | {'RANK': '0', 'LOCAL_RANK': '0', 'WORLD_SIZE': '1'}\n"
        "print('rank ended', subprocess.run([sys.executable, 'train.py'], env=environ).returncode)\n"
    )
    (tmp_path / "train.py").write_text("import time\nprint('up', flush=True)\ntime.sleep(100)")
    process = launched("torchrun")
    assert process.stdout.readline() == "up\n"
    process.send_signal(signal.SIGUSR2)
    assert process.communicate(timeout=60)[0].endswith("rank ended 75\n") and process.returncode == 0

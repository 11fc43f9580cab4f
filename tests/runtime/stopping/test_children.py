"""Children of a rank live until it has saved, and end as in any program when the rank ends them."""

import subprocess
import sys
from pathlib import Path

import pytest

HEAD = """
import multiprocessing, os, signal, subprocess, sys, time
from pathlib import Path
SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)

def signal_as_slurm(pid):
    '''Send the signals from another process than the parent.'''
    for number in SIGNALS:
        subprocess.run(["kill", f"-{int(number)}", str(pid)], check=True)
        time.sleep(0.2)

def is_alive(pid):
    status = Path(f"/proc/{pid}/status")
    return status.exists() and "State:\\tZ" not in status.read_text()

def work(pids):
    pids.put(os.getpid())
    time.sleep(60)

def listen():
    from slurmddp.runtime.rank_process import this_process
    this_process().listen()
"""


def run(folder: Path, body: str, definitions: str = "") -> str:
    program = folder / "program.py"
    program.write_text(f"{HEAD}{definitions}if __name__ == '__main__':\n    listen()\n" + body.replace("\n", "\n    "))
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return done.stdout


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_process_of_multiprocessing_ends_by_its_parent_alone(tmp_path, method):
    body = f"""
context = multiprocessing.get_context("{method}")
pids = context.Queue()
process = context.Process(target=work, args=[pids])
process.start()
signal_as_slurm(process.pid)
assert pids.get() == process.pid
starter = int(Path(f"/proc/{{process.pid}}/stat").read_text().rsplit(")")[1].split()[1])
if starter != os.getpid():
    signal_as_slurm(starter)
print(is_alive(starter), process.is_alive())
process.terminate()
process.join(10)
print(process.exitcode)
"""
    assert run(tmp_path, body) == "True True\n-15\n"


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_programs_that_a_protected_process_starts_get_sigterm(tmp_path, method):
    definitions = """
def end_program(codes):
    program = subprocess.Popen(["sleep", "60"])
    program.terminate()
    codes.put(program.wait(10))
    child = os.fork()
    if child == 0:
        time.sleep(60)
    os.kill(child, signal.SIGTERM)
    codes.put(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    main = f"""
context = multiprocessing.get_context("{method}")
codes = context.Queue()
process = context.Process(target=end_program, args=[codes])
process.start()
print(codes.get(timeout=300), codes.get(timeout=30))
process.join(10)
print(process.exitcode)
"""
    assert run(tmp_path, main, definitions) == "-15 -15\n0\n"


@pytest.mark.parametrize(
    ("start", "end"),
    [
        ("", "program.terminate()"),
        (", start_new_session=True", "os.killpg(program.pid, signal.SIGTERM)"),
        (", process_group=0", "os.killpg(program.pid, signal.SIGTERM)"),
    ],
)
def test_a_program_that_the_rank_starts_ends_by_its_sigterm(tmp_path, start, end):
    body = f"""
program = subprocess.Popen(["sh", "-c", "exec sleep 60"]{start})
time.sleep(0.2)
{end}
print(program.wait(10))
"""
    assert run(tmp_path, body) == "-15\n"


def test_a_tracker_service_lives_and_ends_with_its_client(tmp_path):
    """It installs a handler for SIGTERM and unblocks it, as Go's signal.Notify does."""
    service = tmp_path / "wandb-core"
    service.write_text(
        f"#!{sys.executable}\n"
        "import os, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: os._exit(128))\n"
        "signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])\n"
        "print('ready', flush=True)\n"
        "sys.stdin.read()\n"
    )
    service.chmod(0o700)
    body = f"""
service = subprocess.Popen([{str(service)!r}], start_new_session=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
service.stdout.readline()
signal_as_slurm(service.pid)
print(service.poll())
service.communicate(timeout=10)
print(service.returncode)
"""
    assert run(tmp_path, body) == "None\n0\n"

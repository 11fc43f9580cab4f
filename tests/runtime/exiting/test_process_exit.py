"""The end of a rank's process comes after what the program left for its exit."""

import subprocess
import sys

CHILDREN = """
import multiprocessing, os, sys, time
from slurmddp.runtime.rank_process import this_process
process = this_process()
process.listen()
process.exit.arm()
process.exit.last_handler = lambda: 75
def work():
    time.sleep(0.5)
    print("child", flush=True)
def linger():
    time.sleep(60)
context = multiprocessing.get_context("fork")
daemon = context.Process(target=linger, daemon=True)
daemon.start()
context.Process(target=work).start()
print("main", daemon.pid, flush=True)
"""


def test_processes_of_multiprocessing_end_with_the_rank_as_with_any_program():
    """Those that are daemons are ended, the others are waited for."""
    done = subprocess.run([sys.executable, "-c", CHILDREN], capture_output=True, text=True, timeout=300, check=False)
    words = done.stdout.split()
    assert (words[0], words[2:], done.returncode) == ("main", ["child"], 75), done.stderr
    assert subprocess.run(["kill", "-0", words[1]], capture_output=True, check=False).returncode != 0

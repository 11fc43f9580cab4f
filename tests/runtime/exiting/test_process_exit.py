"""The end of a rank's process comes after what the program left for its exit."""

import os
import subprocess
import sys

CHILDREN = """
import multiprocessing, os, sys, time
from slurmddp.runtime.rank_process import this_process
process = this_process()
process.take_over()
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


FROZEN = """
import sys, weakref
from slurmddp.runtime.rank_process import this_process
process = this_process()
process.take_over()
process.exit.last_handler = lambda: 0
print("standard output")
early = open(sys.argv[1], "w")
class Imported: pass
imported, own = Imported(), Imported()
weakref.finalize(imported, early.write, ", import finalized")
process.exit.freeze_objects()
early.write("early")
weakref.finalize(own, early.write, ", program finalized")
sys.stdout = None
"""


def test_what_was_there_before_the_ranks_were_forked_is_flushed_and_not_finalized(tmp_path):
    command = [sys.executable, "-c", FROZEN, tmp_path / "file"]
    environ = {**os.environ, "PYTHONUNBUFFERED": ""}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=300, check=False)
    assert ((tmp_path / "file").read_text(), done.stdout) == ("early, program finalized", "standard output\n"), (
        done.stderr
    )

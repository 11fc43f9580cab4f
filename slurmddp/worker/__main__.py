"""What a rank runs: `python -m slurmddp.worker [COMMAND...]`.

COMMAND is `train.py args...`, `-m pkg.train args...`, or options of the bundled worker (none: its defaults).
"""

import signal

signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2])

from slurmddp.runtime.rank_process import this_process  # noqa: E402 - the signals wait, blocked, until they are handled

this_process().listen()
this_process().exit.arm()

import sys  # noqa: E402 - a signal during the imports must not be lost

from slurmddp.worker.entry import main  # noqa: E402 - the same

if __name__ == "__main__":
    main(sys.argv[1:], this_process())

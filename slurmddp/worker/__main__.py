"""What a rank runs: `python -m slurmddp.worker [COMMAND...]`.

COMMAND is `train.py args...`, `-m pkg.train args...`, or options of the bundled worker (none: its defaults).
"""

import signal

NOTICES = (signal.SIGUSR1, signal.SIGUSR2)
for notice in NOTICES:
    signal.signal(notice, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_UNBLOCK, NOTICES)

from slurmddp.runtime.leaving import LEAVING  # noqa: E402 - a notice during the imports must not kill the rank

LEAVING.arm()

import sys  # noqa: E402 - the same

from slurmddp.worker.entry import main  # noqa: E402 - the same

if __name__ == "__main__":
    main(sys.argv[1:])

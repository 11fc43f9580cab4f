"""What a rank runs: `python -m slurmddp.worker [COMMAND...]`.

COMMAND is `train.py args...`, `-m pkg.train args...`, or options of the bundled worker (none: its defaults).
"""

import signal

signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2])

from slurmddp.runtime.stopping.signals import NOTICES  # noqa: E402 - a notice waits until somebody listens

NOTICES.listen()

from slurmddp.runtime.exiting.process_exit import LEAVING  # noqa: E402 - a notice during the imports must not be lost

LEAVING.arm()

import sys  # noqa: E402 - the same

from slurmddp.worker.entry import main  # noqa: E402 - the same

if __name__ == "__main__":
    main(sys.argv[1:])

"""What goes wrong in the program itself. Data only."""

from typing import Final

from slurmddp.diagnose.values import Rule

RULES: Final = (
    Rule(
        key="import-error",
        pattern=r"^ModuleNotFoundError: No module named '?(?P<module>[\w.]+)",
        example="ModuleNotFoundError: No module named 'lightning'",
        what="the job's Python has no module {module}",
        advice="install it into the environment that the job uses, or name another: --venv, --conda, --python",
    ),
    Rule(
        key="import-error",
        pattern=r"^ImportError: (?P<what>.+)",
        example="ImportError: cannot import name 'Muon' from 'torch.optim'",
        what="an import failed: {what}",
        advice="compare the environment of the job with the one in which it works: slurmddp doctor",
    ),
    Rule(
        key="import-error",
        pattern=r"(?:^|/)\S*python\S*: No module named (?P<module>\S+)",
        example="/usr/bin/python3: No module named slurmddp.worker",
        what="the job's Python has no module {module}",
        advice="install it into the environment that the job uses, or name another: --venv, --conda, --python",
        place="line",
    ),
    Rule(
        key="command-missing",
        pattern=r"COMMAND (?P<command>\S+) cannot be started: (?P<why>.+)",
        example="Error: COMMAND './train' cannot be started: [Errno 2] No such file or directory: './train'",
        what="{command} cannot be started: {why}",
        advice="correct COMMAND; it has to exist on every node, and to be executable",
        place="line",
    ),
    Rule(
        key="command-missing",
        pattern=r"(?:execve\(\): (?P<path>[^:]+): No such file or directory|line \d+: (?P<name>[^:]+): (?:"
        r"command not found|No such file or directory))",
        example="slurmstepd: error: execve(): torchrun: No such file or directory",
        what="the program {path}{name} is not there",
        advice="load or activate what it comes with (--module, --venv, --conda), or give its full path",
        place="line",
    ),
    Rule(
        key="segfault",
        pattern=r"Fatal Python error: (?:Segmentation fault|Bus error|Aborted)|tasks? [\d,-]+: Segmentation fault",
        example="Fatal Python error: Segmentation fault",
        what="a library in C crashed",
        advice="--env PYTHONFAULTHANDLER=1 and submit again: Python then says in which line it was",
        again=None,
        place="line",
    ),
    Rule(
        key="bus-error",
        pattern=r"tasks? (?P<tasks>[\d,-]+): Bus error",
        example="srun: error: n2: task 1: Bus error",
        what="task {tasks} ended by a bus error: most often /dev/shm is full, or a file that is mapped was cut short",
        advice="a larger /dev/shm, fewer loader workers, or set_sharing_strategy('file_system')",
        place="line",
        sure="likely",
    ),
    Rule(
        key="illegal-instruction",
        pattern=r"tasks? (?P<tasks>[\d,-]+): Illegal instruction",
        example="srun: error: n2: task 1: Illegal instruction",
        what="task {tasks} uses instructions that its node's processor does not have",
        advice="take nodes of one kind (--constraint), or libraries built for the oldest of them",
        place="line",
    ),
    Rule(
        key="interrupted",
        pattern=r"^KeyboardInterrupt\b",
        example="KeyboardInterrupt",
        what="the program was interrupted by hand (SIGINT)",
        advice="submit it again when it is wanted",
        again=True,
    ),
    Rule(
        key="exit-status",
        pattern=r"^exit status (?P<status>\d+)$",
        example="exit status 3",
        what="the program ended itself with status {status}",
        advice="the program's own last lines say why",
        general=True,
    ),
    Rule(
        key="exception",
        pattern=r"^(?P<error>[A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt|Warning|Iteration)\b.*)",
        example="ValueError: batch 17 has a label of 12, there are 10 classes",
        what="the program raised {error}",
        advice="correct the program; the traceback says where",
        general=True,
    ),
)

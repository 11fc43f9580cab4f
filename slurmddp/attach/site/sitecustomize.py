"""Runs at the start of each Python below a person's own launch line: a Python that is a rank becomes slurmddp's worker.

It must cost nothing in every other Python, and print nothing: it needs no more than what site has imported.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ATTACH = "SLURMDDP_ATTACH"
_FLAGS = "bBdEIOPqsSuvx"
"""Options of python without a value; those of the worker's Python are the same."""
LAUNCHERS = ("torchrun", "accelerate", "accelerate-launch", "deepspeed", "composer", "colossalai", "horovodrun")
LAUNCHER_MODULES = (
    "torch.distributed.run",
    "torch.distributed.launch",
    "accelerate.commands.launch",
    "deepspeed.launcher.runner",
    "deepspeed.launcher.launch",
    "composer.cli.launcher",
)
TOOLS = ("pip", "pip3", "conda", "mamba", "uv", "wandb", "tensorboard", "jupyter", "ensurepip", "venv", "site")
"""Programs and modules that no person starts as a rank."""
OF_TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK")


def read_command(words: "Sequence[str]") -> "tuple[list[str], list[str]]":
    """Return python's options and the program's words, `[script, ...]` or `["-m", module, ...]`, of a command line.

    The words are empty for code in the command line, standard input, an interactive Python, and an archive.
    """
    options: list[str] = []
    rest = list(words[1:])
    while rest and rest[0].startswith("-") and rest[0] != "-":
        word = rest.pop(0)
        for place, letter in enumerate(word[1:], 1):
            value = word[place + 1 :]
            if letter == "m":
                module = [value] if value else rest[:1]
                options += ["-" + word[1:place]] if place > 1 else []
                return options, ["-m", *module, *(rest if value else rest[1:])]
            if letter in "WX":
                options += [word] if value else [word, *rest[:1]]
                rest = rest if value else rest[1:]
                break
            if letter not in _FLAGS:
                return [], []
        else:
            options.append(word)
    is_script = bool(rest) and rest[0] != "-" and not rest[0].endswith((".pyz", ".zip")) and not os.path.isdir(rest[0])
    return options, rest if is_script else []


def role_of(environ: "Mapping[str, str]", words: "Sequence[str]") -> str:
    """Return what a Python is, by its environment and its command line: `rank`, `launcher`, or nothing."""
    program = read_command(words)[1]
    if not program:
        return ""
    name = program[1] if program[0] == "-m" else os.path.basename(program[0])
    if name in (LAUNCHER_MODULES if program[0] == "-m" else LAUNCHERS):
        return "launcher"
    is_task = "SLURM_PROCID" in environ and ("SLURM_STEP_ID" in environ or "SLURM_STEPID" in environ)
    of_launcher = all(name in environ for name in OF_TORCHRUN) or "OMPI_COMM_WORLD_RANK" in environ
    return "rank" if (is_task or of_launcher) and name not in TOOLS else ""


def _command_line() -> "list[str]":
    """Return the words of this process, as `sys.orig_argv` of newer Pythons has them."""
    with open("/proc/self/cmdline", "rb") as file:
        return os.fsdecode(file.read()).split("\0")[:-1]


def _become_worker(words: "Sequence[str]") -> None:
    """Go on as the worker in this process. Stop signals wait until it hears them."""
    import signal

    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2])
    options, program = read_command(words)
    environ = {name: value for name, value in os.environ.items() if not name.startswith(ATTACH)}
    for name in ("PYTHONPATH", "BASH_ENV"):
        before = os.environ.get(f"{ATTACH}_{name}")
        environ.pop(name, None)
        environ.update({name: before} if before else {})
    environ["SLURMDDP_ATTACHED"] = "1"
    bootstrap = os.path.join(os.environ[ATTACH], "attach", "bootstrap.py")
    os.execve(sys.executable, [sys.executable, *options, bootstrap, "slurmddp.worker", *program], environ)


def _forward_signals() -> None:
    """Send the stop signals that would end a launcher to its ranks."""
    import signal

    def forward(number: int, _: object) -> None:
        for task in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{task}/children") as file:
                for child in file.read().split():
                    os.kill(int(child), number)

    for number in (signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, forward)


def _chain() -> None:
    """Run the environment's own sitecustomize, which this one hides."""
    finder = next(one for one in sys.meta_path if getattr(one, "__name__", "") == "PathFinder")
    here = os.path.dirname(__file__)
    others = [path for path in sys.path if os.path.abspath(path) != here]
    found = finder.find_spec("sitecustomize", others)
    if found and found.loader:
        found.loader.exec_module(sys.modules[__name__])


def _attach() -> None:
    if ATTACH not in os.environ or sys.version_info < (3, 9):
        return
    words = _command_line()
    role = role_of(os.environ, words)
    if role == "rank" and sys.executable:
        _become_worker(words)
    elif role == "launcher":
        _forward_signals()


if __name__ == "sitecustomize":
    try:
        _attach()
    except Exception:
        pass
    _chain()

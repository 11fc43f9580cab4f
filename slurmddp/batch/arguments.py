"""The command line of the supervisor, as the batch script has it. No I/O."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from slurmddp.errors import UsageError

PROTOCOL: Final = 1
"""The version of the command line. It changes when a newer supervisor would misunderstand an older script."""

LEAD_S: Final = 120
MARGIN_S: Final = 60
MAX_RESTARTS: Final = 3
PORTS: Final = (20000, 29999)
_UNLIMITED: Final = "unlimited"


class Options(NamedTuple):
    """How the supervisor treats the job."""

    protocol: int = PROTOCOL
    max_restarts: int = MAX_RESTARTS
    """Restarts in a row without a new checkpoint."""
    max_requeues: int | None = None
    """Requeues by the job itself; None for no limit while checkpoints advance."""
    signal_lead: int = LEAD_S
    """Seconds between the stop signal to the ranks and the time limit."""
    signal_margin: int = MARGIN_S
    """Seconds that the ranks must have before the stop signal."""
    port_range: tuple[int, int] = PORTS
    """First and last port of the range for the ranks' two ports."""
    rendezvous_file: bool = False
    """Rendezvous by a file in the attempt's folder."""
    reset: int | None = None
    """Move the run's state to the folder `before-reset-N`, unless that exists."""
    require_env: tuple[str, ...] = ()
    """Variables that must be set when the job is submitted."""
    checkpoints: str = ""
    """The glob of the checkpoints that the program writes by its own means; empty without."""
    finish: bool = False
    """Call the script's function `finish` after each attempt."""
    record: bool = True
    """Add the job to the run's submissions unless it is there."""
    single_attempt: bool = False
    """Start the ranks once in an existing allocation: no restart, no requeue."""


def read_protocol(words: Sequence[str]) -> int:
    """Return the protocol of a command line that may have unknown options."""
    given = [word.partition("=")[2] for word in words if word.startswith("--protocol=")]
    return int(given[-1]) if given and given[-1].isdecimal() else PROTOCOL


def parse(words: Sequence[str]) -> Options:
    """Return the options of a command line. Raises UsageError for an unknown option or a wrong value."""
    options = Options()
    for word in words:
        try:
            options = options._replace(**_read(word, options))
        except (KeyError, ValueError) as error:
            raise UsageError(f"{word} is no option of this supervisor; submit the job again") from error
    return options


def _read(word: str, options: Options) -> dict[str, Any]:
    """Return the field that an option sets; `options` has the earlier ones, to which a repeated option adds."""
    name, equals, text = word.partition("=")
    if name == "--require-env":
        return {"require_env": (*options.require_env, text)}
    return {name.removeprefix("--").replace("-", "_"): _VALUES[name](text)} if equals else _FLAGS[name]


def _limit(text: str) -> int | None:
    return None if text == _UNLIMITED else int(text)


def _ports(text: str) -> tuple[int, int]:
    first, _, last = text.partition("-")
    return int(first), int(last)


_VALUES: Final[Mapping[str, Callable[[str], Any]]] = {
    "--protocol": int,
    "--max-restarts": int,
    "--max-requeues": _limit,
    "--signal-lead": int,
    "--signal-margin": int,
    "--port-range": _ports,
    "--reset": int,
    "--checkpoints": str,
}
_FLAGS: Final[Mapping[str, dict[str, Any]]] = {
    "--rendezvous-file": {"rendezvous_file": True},
    "--finish": {"finish": True},
    "--no-record": {"record": False},
    "--single-attempt": {"single_attempt": True},
}


def build_arguments(options: Options) -> Iterable[str]:
    """Yield the command line of these options; most defaults are left out."""
    yield f"--protocol={options.protocol}"
    yield f"--max-restarts={options.max_restarts}"
    yield f"--max-requeues={_UNLIMITED if options.max_requeues is None else options.max_requeues}"
    yield f"--signal-lead={options.signal_lead}"
    if options.signal_margin != MARGIN_S:
        yield f"--signal-margin={options.signal_margin}"
    yield "--port-range={}-{}".format(*options.port_range)
    if options.rendezvous_file:
        yield "--rendezvous-file"
    if options.reset is not None:
        yield f"--reset={options.reset}"
    if options.checkpoints:
        yield f"--checkpoints={options.checkpoints}"
    yield from (f"--require-env={name}" for name in options.require_env)
    if not options.record:
        yield "--no-record"
    if options.single_attempt:
        yield "--single-attempt"

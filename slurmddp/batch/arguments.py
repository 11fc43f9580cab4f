"""What the batch script tells the supervisor on its command line. No I/O."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from slurmddp.errors import UsageError

PROTOCOL: Final = 1
"""Of script and supervisor. It changes when a script of today would be misunderstood."""

LEAD_S: Final = 120
MARGIN_S: Final = 60
MAX_RESTARTS: Final = 3
PORTS: Final = (20000, 29999)
_UNLIMITED: Final = "unlimited"


class Options(NamedTuple):
    """How the supervisor is to treat the job."""

    protocol: int = PROTOCOL
    max_restarts: int = MAX_RESTARTS
    """Failed starts of the ranks in a row, after the first, without a new checkpoint."""
    max_requeues: int | None = None
    """Requeues by the job itself; None for any number while checkpoints advance."""
    signal_lead: int = LEAD_S
    """Seconds before the time limit at which the ranks are told to stop."""
    signal_margin: int = MARGIN_S
    """Seconds that the time limit must leave before that."""
    port_range: tuple[int, int] = PORTS
    """First and last port in which the ranks' two ports are chosen."""
    rendezvous_file: bool = False
    """Whether the ranks form their group by a file in the attempt's folder."""
    reset: int | None = None
    """Set aside what the run has, in the folder `before-reset-N`, unless that is there."""
    require_env: tuple[str, ...] = ()
    """Variables that must be set where the job was submitted."""
    finish: bool = False
    """Call the script's function `finish` after each attempt."""
    record: bool = True
    """Write the job into the run's submissions unless it is there."""
    single_attempt: bool = False
    """Start the ranks once in an allocation that somebody else has made: no restart, no requeue."""


def protocol_of(words: Sequence[str]) -> int:
    """Return the protocol of a command line whose other options may be unknown."""
    given = [word.partition("=")[2] for word in words if word.startswith("--protocol=")]
    return int(given[-1]) if given and given[-1].isdecimal() else PROTOCOL


def parse(words: Sequence[str]) -> Options:
    """Return the options of a command line; each is one word. Raises UsageError for a wrong one."""
    options = Options()
    for word in words:
        try:
            options = options._replace(**_read(word, options))
        except (KeyError, ValueError) as error:
            raise UsageError(f"{word} is no option of the supervisor; --help lists them") from error
    return options


def _read(word: str, options: Options) -> dict[str, Any]:
    """Return the field that an option sets; `options` are those before it."""
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
}
_FLAGS: Final[Mapping[str, dict[str, Any]]] = {
    "--rendezvous-file": {"rendezvous_file": True},
    "--finish": {"finish": True},
    "--no-record": {"record": False},
    "--single-attempt": {"single_attempt": True},
}
USAGE: Final = """\
usage: python -m slurmddp.batch [OPTIONS] < <(declare -f)

Supervises a job: starts its ranks, starts them again, requeues the job, or ends it. Started by the batch script,
whose shell functions are its standard input.

  --protocol=N            version of what script and supervisor say to each other
  --max-restarts=N        failed attempts in a row without a new checkpoint
  --max-requeues=N        requeues that the job itself may ask for; `unlimited` for any number
  --signal-lead=N         seconds between the notice to the ranks and the time limit
  --signal-margin=N       seconds that the time limit must leave before the notice
  --port-range=N-N        where the two ports of rank 0 are chosen
  --rendezvous-file       the ranks form their group by a file, not by a port
  --reset=N               set the run's checkpoints aside in before-reset-N, once
  --require-env=NAME      end the job when this variable is not set; may be given again
  --finish                call the script's function `finish` after each attempt
  --no-record             keep no record of the job among the submissions
  --single-attempt        start the ranks once: no restart, requeue, question to Slurm
"""


def words(options: Options) -> Iterable[str]:
    """Yield the words of a command line that `parse` reads as these options; defaults are left out."""
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
    yield from (f"--require-env={name}" for name in options.require_env)
    if not options.record:
        yield "--no-record"
    if options.single_attempt:
        yield "--single-attempt"

"""The options of the supervisor: the command line that the batch script has, and the defaults of a job. Values only.

The fields of JobSpec take their defaults from here; the supervisor imports nothing else of the configuration.
"""

from __future__ import annotations
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from slurmddp.errors import UsageError

_FORMER_OPTION: Final = "--protocol="
"""An older script that waits in the queue may have it; it is skipped."""
_UNLIMITED: Final = "unlimited"
_ALWAYS_WRITTEN: Final = ("max_restarts", "max_requeues", "signal_lead", "port_range")


class Options(NamedTuple):
    """How the supervisor treats the job: a field is the option of its name."""

    max_restarts: int = 3
    """Restarts in a row without a new checkpoint."""
    max_requeues: int | None = None
    """Requeues by the job itself; None for any number while checkpoints advance."""
    signal_lead: int = 120
    """Seconds between the stop signal to the ranks and the time limit."""
    signal_margin: int = 60
    """Seconds that the ranks must have before the stop signal; with less they would stop soon after their start."""
    port_range: str = "20000-29999"
    """First and last port of the range for the ranks' two ports."""
    head_address: str = "{host}"
    """MASTER_ADDR of the ranks; `{host}` stands for the first node."""
    rendezvous_file: bool = False
    """Rendezvous by a file in the attempt's folder."""
    reset: int | None = None
    """Move the run's state to the folder `before-reset-N`, unless that exists."""
    checkpoints: str = ""
    """The glob of the checkpoints that the program writes by its own means; empty without."""
    require_env: tuple[str, ...] = ()
    """Variables that must be set when the job is submitted."""
    record: bool = True
    """Add the job to the run's submissions unless it is there."""
    single_attempt: bool = False
    """Start the ranks once in an existing allocation: no restart, no requeue."""
    own_launch: bool = False
    """A shell function of the user's own script starts the ranks, and the shell waits for the supervisor's orders."""
    repeated_launch: bool = False
    """Such a function runs several trainings, as in a loop: the end of one is not the end of another."""
    notify: bool = False
    """Tell the events of the job to the target of `--notify`, which a variable names."""
    hang_timeout: str = ""
    """End the ranks and start them again when they hang for so many seconds, or `auto`; empty: warn only."""
    avoid: bool = True
    """Leave out the nodes with evidence against them when the job is requeued."""
    spares: int = 0
    """Nodes of the allocation that wait to replace others."""
    finish: bool = False
    """Call the script's function `finish` after each attempt."""

    @property
    def ports(self) -> tuple[int, int]:
        """First and last port of the range."""
        first, _, last = self.port_range.partition("-")
        return int(first), int(last)


DEFAULTS: Final = Options()


def parse(words: Iterable[str]) -> Options:
    """Return the options of a command line. Raises UsageError for an unknown option or a wrong value."""
    options = DEFAULTS
    for word in words:
        try:
            options = options if word.startswith(_FORMER_OPTION) else options._replace(**_read(word, options))
        except (KeyError, ValueError) as error:
            raise UsageError(f"{word} is no option of this supervisor; submit the job again") from error
    return options


def _read(word: str, options: Options) -> dict[str, Any]:
    """Return the field that an option sets; `options` has the earlier ones, to which a repeated option adds."""
    name, equals, text = word.partition("=")
    field = name.removeprefix("--").removeprefix("no-").replace("-", "_")
    default = DEFAULTS._asdict()[field]
    if isinstance(default, bool) == bool(equals):  # a switch has no value, and all others have one
        raise ValueError
    if isinstance(default, bool):
        return {field: not name.startswith("--no-")}
    if isinstance(default, tuple):
        return {field: (*getattr(options, field), text)}
    if isinstance(default, str):
        return {field: text}
    return {field: None if text == _UNLIMITED else int(text)}


def build_arguments(options: Options) -> Iterator[str]:
    """Yield the command line of these options; most defaults are left out."""
    for field, value in options._asdict().items():
        name = field.replace("_", "-")
        if value == getattr(DEFAULTS, field) and field not in _ALWAYS_WRITTEN:
            continue
        if isinstance(value, bool):
            yield f"--{'' if value else 'no-'}{name}"
        else:
            items = value if isinstance(value, tuple) else (value,)
            yield from (f"--{name}={_UNLIMITED if item is None else item}" for item in items)

"""Reports the present state of a sandbox."""

from collections.abc import Iterator
from dataclasses import dataclass

from slurmddp.sandbox import state_directory
from slurmddp.sandbox.cluster import Sandbox, find
from slurmddp.sandbox.state_directory import Files
from slurmddp.text import format_table


@dataclass(frozen=True, kw_only=True)
class Part:
    """A daemon or a node."""

    name: str
    state: str
    """Of a daemon `running` or `ended`; of a node `off` or Slurm's state, with `(cut)` when it is disconnected."""
    log: str


@dataclass(frozen=True, kw_only=True)
class Report:
    """The state of one sandbox, which may not be up."""

    name: str
    up: bool
    folder: str
    nodes: tuple[Part, ...] = ()
    daemons: tuple[Part, ...] = ()
    others: tuple[str, ...] = ()
    """This user's other sandboxes."""

    def text(self) -> str:
        """Return the report of a sandbox that is up as a table for people."""
        rows = [("NAME", "STATE", "LOG"), *((part.name, part.state, part.log) for part in self.daemons + self.nodes)]
        others = [f"other sandboxes: {' '.join(self.others)}"] if self.others else []
        return "\n".join([f"sandbox '{self.name}' is up in {self.folder}", *others, *format_table(rows)])


def report(name: str = "default") -> Report:
    """Return the state of the sandbox of that name; raise ClusterError when it is up and does not answer."""
    others = tuple(other for other in state_directory.names() if other != name)
    sandbox = find(name)
    if sandbox is None:
        return Report(name=name, up=False, folder=str(Files.of_sandbox(name).folder), others=others)
    running = sandbox.daemons()
    return Report(
        name=name,
        up=True,
        folder=str(sandbox.files.folder),
        nodes=tuple(_nodes(sandbox, running)),
        daemons=tuple(_daemons(sandbox, running["daemons"])),
        others=others,
    )


def _nodes(sandbox: Sandbox, running: dict[str, dict[str, bool]]) -> Iterator[Part]:
    states = sandbox.node_states() if running["daemons"]["slurmctld"] else {}
    for name, is_on in running["nodes"].items():
        state = states.get(name, "UNKNOWN") if is_on else "off"
        state += " (cut)" if running["disconnected"][name] else ""
        yield Part(name=name, state=state, log=str(sandbox.files.log(name)))


def _daemons(sandbox: Sandbox, running: dict[str, bool]) -> Iterator[Part]:
    for name, runs in running.items():
        yield Part(name=name, state="running" if runs else "ended", log=str(sandbox.files.log(name)))

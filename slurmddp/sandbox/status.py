"""Reports the present state of a sandbox."""

from dataclasses import dataclass

from slurmddp.sandbox import state_directory
from slurmddp.sandbox.cluster import find
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
    states = sandbox.node_states() if running["daemons"]["slurmctld"] else {}
    seen = {node: states.get(node, "UNKNOWN") if is_on else "off" for node, is_on in running["nodes"].items()}
    cut = {node: " (cut)" if is_cut else "" for node, is_cut in running["disconnected"].items()}
    log = sandbox.files.log
    return Report(
        name=name,
        up=True,
        folder=str(sandbox.files.folder),
        nodes=tuple(Part(name=node, state=state + cut[node], log=str(log(node))) for node, state in seen.items()),
        daemons=tuple(
            Part(name=daemon, state="running" if runs else "ended", log=str(log(daemon)))
            for daemon, runs in running["daemons"].items()
        ),
        others=others,
    )

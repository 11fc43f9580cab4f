"""Whether this attempt may still write the run's folder. Reads one small file; standard library only."""

from collections.abc import Mapping
from pathlib import Path

from slurmddp.errors import FencedError
from slurmddp.rundir import RunDir


class Owner:
    """The one attempt that may write: the file `path` holds its line, `<cluster> <job> <attempt>`."""

    def __init__(self, path: Path, line: str) -> None:
        self.path = path
        self.line = line.strip()

    def check(self) -> None:
        """Return if the file holds this attempt's line.

        Raises FencedError when it holds another line or is missing; OSError when it cannot be read.
        """
        found = self._read()
        if found != self.line:
            raise FencedError(
                f"this attempt ({self.line}) does not own the run any more: {self.path} names {found or 'nobody'}; "
                "it writes nothing from now on"
            )

    def _read(self) -> str:
        try:
            return self.path.read_text(errors="replace").strip()
        except FileNotFoundError:
            return ""


def owner_of(run_dir: RunDir, environment: Mapping[str, str]) -> Owner | None:
    """Return the owner that DDPRUN_OWNER names; None where it is unset, and nobody fences."""
    line = environment.get("DDPRUN_OWNER")
    return Owner(run_dir.owner, line) if line else None

"""How the runtime comes into a Python that a person's own launch line starts. Standard library only."""

from collections.abc import Mapping
from pathlib import Path


def attach_variables(environ: Mapping[str, str], package: Path) -> dict[str, str]:  # noqa: ARG001
    """Return what the environment of a launch needs, so that the Python of a rank attaches itself."""
    return {}

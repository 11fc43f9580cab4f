"""Reads the names of a container's image and mounts, and chooses the program that runs the image. Pure."""

import re
from typing import Final, Literal

from slurmddp.errors import UsageError
from slurmddp.text import quote_value

Runtime = Literal["apptainer", "podman-hpc", "pyxis", "shifter"]

PACKAGE: Final = "/opt/slurmddp"
"""The folder in a container that has our package and nothing else."""

_PYXIS = r".*\.sqsh|[^/]*#.*"
_URI = r"[a-z][a-z0-9+.-]*://.*"
_MOUNT = r"(?P<source>/[^:,]*)(:(?P<target>/[^:,]*))?(:(ro|rw))?"


def runtime_of(image: str) -> Runtime:
    """Return the program that runs an image, by its name.

    pyxis runs a squashfs file, `REGISTRY#IMAGE` and a bare `IMAGE:TAG`; apptainer runs a path, and a name with `://`.
    """
    is_for_apptainer = not re.fullmatch(_PYXIS, image) and (re.fullmatch(_URI, image) or is_path(image))
    return "apptainer" if is_for_apptainer else "pyxis"


def is_path(image: str) -> bool:
    """Return whether an image is a file or a folder, not a name in a registry."""
    return image.startswith(("/", "./", "../", "~")) or image.endswith((".sif", ".sqsh", ".img"))


def complete_mount(mount: str) -> str:
    """Return a mount with its target, which pyxis needs.

    Raises UsageError unless it is SRC or SRC:DST with absolute paths; `:ro` or `:rw` may follow.
    """
    found = re.fullmatch(_MOUNT, mount)
    if not found:
        raise UsageError(
            f"--container-mount: {quote_value(mount)} is not SRC[:DST][:ro]; both are absolute paths without : and ,"
        )
    source = found["source"]
    return mount if found["target"] else f"{source}:{source}{mount.removeprefix(source)}"

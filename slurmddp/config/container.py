"""What a container's image and mounts are called, and which program runs the image. Pure."""

import re
from typing import Final, Literal

from slurmddp.errors import UsageError
from slurmddp.text import shown

Runtime = Literal["apptainer", "pyxis"]

PACKAGE: Final = "/opt/slurmddp"
"""Where a container finds the folder that holds our package, and nothing else."""

_OF_PYXIS = r".*\.sqsh|[^/]*#.*"
_URI = r"[a-z][a-z0-9+.-]*://.*"
_MOUNT = r"(?P<source>/[^:,]*)(:(?P<target>/[^:,]*))?(:(ro|rw))?"


def runtime_of(image: str) -> Runtime:
    """Return the program that an image is meant for, by what it is called.

    A squashfs file, `REGISTRY#IMAGE` and a bare `IMAGE:TAG` are pyxis's; a path, and whatever has `://`, apptainer's.
    """
    if re.fullmatch(_OF_PYXIS, image):
        return "pyxis"
    return "apptainer" if re.fullmatch(_URI, image) or is_path(image) else "pyxis"


def is_path(image: str) -> bool:
    """Tell a file or folder from the name of an image in a registry."""
    return image.startswith(("/", "./", "../", "~")) or image.endswith((".sif", ".sqsh", ".img"))


def image_word(image: str) -> str:
    """Return an image as pyxis takes it, for which a file's bare name is that of one in a registry."""
    return f"./{image}" if is_path(image) and "/" not in image else image


def check_mount(mount: str) -> None:
    """Raise UsageError unless a mount is SRC, SRC:DST or either with `:ro` or `:rw`, of absolute paths."""
    if not re.fullmatch(_MOUNT, mount):
        raise UsageError(
            f"--container-mount: {shown(mount)} is not SRC[:DST][:ro]; both are absolute paths without : and ,"
        )


def check_mountable(path: str, what: str) -> None:
    """Raise UsageError for a path that no mount can name."""
    if re.search(r"[:,]", path):
        raise UsageError(f"--container: {what} {shown(path)} has : or , in its path, which no container can mount")


def spelled(mount: str) -> str:
    """Return a mount as apptainer and pyxis both take it, its target written out."""
    found = re.fullmatch(_MOUNT, mount)
    if found is None or found["target"]:
        return mount
    source = found["source"]
    return f"{source}:{source}{mount.removeprefix(source)}"

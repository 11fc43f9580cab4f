"""Looks at another machine, and puts slurmddp there: one folder with this version, which no training needs."""

from importlib import metadata
from pathlib import Path
from typing import Final

from slurmddp.errors import ClusterError
from slurmddp.remote.connection import PROGRAM, Host
from slurmddp.script.quoting import shell
from slurmddp.version import __version__

_LOOK: Final = """for python in python3.14 python3.13 python3.12 python3.11 python3 ''; do
  "$python" -c 'import sys, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break
done
for program in "$python" rsync sbatch "$PWD/%s"; do command -v "$program" || echo; done"""
_PROGRAM: Final = """#!/bin/sh
program=$0; [ ! -L "$0" ] || program=$(readlink -f -- "$0"); exec "${program%/*}/python" -P -m slurmddp "$@\""""
_OF_RANKS: Final = ("torch", "numpy", "submitit")
"""What only ranks and programs import: they have a Python of their own."""


def look(host: Host) -> dict[str, str]:
    """Return where the programs are there; slurmddp may be missing. Raises ClusterError for another missing program."""
    found = host.run(f"cd -- {shell(host.folder)} 2>/dev/null; {_LOOK % PROGRAM}").split("\n")
    programs = dict(zip(("python", "rsync", "sbatch", "slurmddp"), found, strict=False))
    if missing := [program for program in programs if program != "slurmddp" and not programs[program]]:
        named = " and no ".join(missing).replace("python", "Python 3.11 or newer with venv")
        raise ClusterError(f"{host.name} has no {named}; install it, or load its module in ~/.bash_profile there")
    return programs


def install(host: Host, python: str) -> None:
    """Install the version that runs here into a folder of its own there; its program comes last."""
    place, package = shell(f"{host.folder}/.slurmddp/{__version__}"), Path(__file__).parents[1]
    listed = [one.partition(";") for one in metadata.requires("slurmddp") or ()]
    needed = [name for name, _, extra in listed if (not extra or "watch" in extra) and not name.startswith(_OF_RANKS)]
    make = f"{shell(python)} -m venv --clear . && bin/python -m pip install -qq {shell(needed)}"
    find = "cd lib/python3*/site-packages && pwd"
    packages = host.run(f"mkdir -p -- {place} && cd -- {place} && {make} && {find}").rstrip("\n")
    about = metadata.distribution("slurmddp").locate_file(f"slurmddp-{__version__}.dist-info")
    host.rsync(packages, "--exclude=__pycache__", str(package), str(about), "HOST:")
    if not (package / "templates").exists():  # a work tree has them beside the package
        host.rsync(packages, f"{package.parent}/templates", f"{package.parent}/examples", "HOST:slurmddp/")
    host.run(f"cd -- {place} && printf %s {shell(_PROGRAM)} >bin/slurmddp && chmod +x bin/slurmddp")

"""What newer Pythons have, for those of the nodes: 3.9 and newer. Starts nothing."""

import dataclasses
import os
import re
import sys
from typing import TYPE_CHECKING, Any, NoReturn

OLDEST = 9
"""The N of the oldest Python 3.N for ranks and supervisor."""
_BOOTSTRAP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "attach", "bootstrap.py")  # noqa: PTH100, PTH118, PTH120 - no pathlib here

if TYPE_CHECKING or sys.version_info >= (3, 10):
    from dataclasses import dataclass as dataclass  # noqa: PLC0414 - for those who import it from here
else:

    def dataclass(*, kw_only=False, **options: bool):  # noqa: ANN001, ANN201 - dataclasses.dataclass declares the types
        """Make a dataclass whose fields without a default may follow others with `kw_only`."""

        def decorate(new: type) -> type:
            for name in new.__annotations__ if kw_only else ():
                if name not in vars(new):
                    setattr(new, name, dataclasses.field(default_factory=lambda name=name: _raise_missing(new, name)))
            return dataclasses.dataclass(**options)(new)

        return decorate


def _raise_missing(new: Any, name: str) -> NoReturn:
    raise TypeError(f"{new.__name__}() is missing the argument {name!r}")


def minor_version(python: str) -> "int | None":
    """Return the N of a Python 3.N, by the name of its file alone; None where the name does not say it."""
    found = re.fullmatch(r"python3\.(\d+)", os.path.basename(os.path.realpath(python)))  # noqa: PTH119 - no pathlib here
    return int(found[1]) if found else None


def needs_bootstrap(python: str) -> bool:
    """Return whether a Python is known to have no `-P`, which came with 3.11, and no slurmddp by pip."""
    return (minor_version(python) or 11) < 11  # noqa: PLR2004


def start_words(python: str) -> "tuple[str, ...]":
    """Return the words between a Python and the name of a module of slurmddp that run it as `-m` does.

    The working folder, where others may have put modules, is not in sys.path. Without `-P` a file is run: its folder is
    the first of sys.path, not the working folder.
    """
    return ("-u", _BOOTSTRAP) if needs_bootstrap(python) else ("-P", "-u", "-m")

"""What newer Pythons have, for those of the nodes: 3.9 and newer."""

import dataclasses
import sys
from typing import TYPE_CHECKING, Any, NoReturn

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

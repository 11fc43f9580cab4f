"""The example scripts that come with slurmddp: their names and their texts. Writes nothing."""

from pathlib import Path
from typing import Final

_PACKAGE: Final = Path(__file__).parents[1]
_PACKAGED: Final = _PACKAGE / "examples"
_FOLDER: Final = _PACKAGED if _PACKAGED.is_dir() else _PACKAGE.parent / "examples"
"""In the package when it is installed; next to the package in a checkout."""


def example_names() -> tuple[str, ...]:
    """Return the names of all examples: those of their files, without `.py`."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.py")))


def read_example(name: str) -> str:
    """Return the text of an example."""
    return (_FOLDER / f"{name}.py").read_text(encoding="utf-8")

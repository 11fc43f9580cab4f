"""Lines of output that can do nothing to a terminal, whoever wrote them; names are for `fields.printable`. Pure."""

import re
from typing import Final

_ESCAPE: Final = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_MARK: Final = "\ufffd"


def clean(line: bytes) -> str:
    r"""Return a line of output for reading: no colours, a mark for what cannot be printed, no line end.

    Of a line that was written over, as progress bars are by `\r`, the last state is left.
    """
    text = line.decode("utf-8", "replace").rstrip("\r\n").rpartition("\r")[2]
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char == "\t" else _MARK for char in _ESCAPE.sub("", text))

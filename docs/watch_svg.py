"""Draws docs/watch.svg: one frame of `slurmddp watch`, of a job that runs now.

    slurmddp sandbox up && eval "$(slurmddp sandbox env)"
    slurmddp submit --nodes 2 --ntasks-per-node 2 -c 1 --task cifar10 --data synthetic
    python docs/watch_svg.py cifar10 docs/watch.svg      # once it has trained for a while

It is the screen at 80 columns and 24 lines, by rich's export_svg, without the font that rich would load from elsewhere.
"""

import io
import os
import re
import sys
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console

from slurmddp.cli.watch.frame import draw
from slurmddp.cli.watch.keys import Session
from slurmddp.cli.watch.poller import Poller

WIDTH, HEIGHT = 80, 24
FORMAT = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)


def main(run: str, path: str) -> None:
    """Write the frame of a run of this folder to a file."""
    poller = Poller([run], "jobs", os.environ, lambda: None)
    poller.ask()
    console = Console(file=io.StringIO(), record=True, width=WIDTH, force_terminal=True, color_system="truecolor")
    for line in draw(Session(poller).view(HEIGHT), WIDTH, HEIGHT):
        console.print(line)
    svg = console.export_svg(title=f"slurmddp watch {run}", code_format=FORMAT, unique_id="watch")
    Path(path).write_text("\n".join(line.rstrip() for line in svg.splitlines()) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Draws docs/watch.svg: the screen of `slurmddp watch`, of a job that runs now.

    slurmddp sandbox up && eval "$(slurmddp sandbox env)"
    slurmddp submit --nodes 2 --ntasks-per-node 2 -c 1 --task mnist --data synthetic --epochs 40
    python docs/watch_svg.py mnist docs/watch.svg      # once it has trained for a while

It is the screen at 100 columns and 28 lines, by Textual's export_screenshot, without the font that it would load from
elsewhere.
"""

import asyncio
import os
import re
import sys
from pathlib import Path

from slurmddp.cli.watch.app import WatchApp

SIZE = (100, 28)
ANSWER_S = 5


async def draw(run: str) -> str:
    """Return the screen of a run of this folder."""
    app = WatchApp([run], "jobs", os.environ)
    async with app.run_test(size=SIZE):
        await asyncio.sleep(ANSWER_S)
        return re.sub(r"@font-face \{.*?\}\s*", "", app.export_screenshot(), flags=re.DOTALL)


if __name__ == "__main__":
    _, run, path = sys.argv
    lines = asyncio.run(draw(run)).splitlines()
    Path(path).write_text("\n".join(line.rstrip() for line in lines) + "\n")

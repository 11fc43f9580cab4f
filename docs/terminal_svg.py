"""Draws docs/terminal.svg: lines typed in a terminal, with what they print, on a Slurm that runs now.

    slurmddp sandbox up --nodes 2 --gpus-per-node 2 && eval "$(slurmddp sandbox env)"
    cd $(mktemp -d) && python .../docs/terminal_svg.py .../docs/terminal.svg

A training of examples/steps.py is preempted and resumes; another one has a rank that fails. Long lines are cut at 100
columns. Nothing is invented: what is not shown is left out by the commands that are shown.
"""

import io
import re
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.text import Text

WIDTH = 100
EXAMPLE = Path(__file__).parent.parent / "examples" / "steps.py"
LOSS = "        loss = nn"
FAULT = """\
        if ddp.rank == 3 and step == 40:
            raise ValueError("label 12, but there are 10 classes")
"""
LIMIT_S = 240
SHOWN = (
    "slurmddp submit --nodes 2 --gpus-per-node 2 -p low steps.py --epochs 60",
    "slurmddp sandbox preempt steps     # a job of a higher priority takes the nodes",
    "slurmddp status steps | head -n 1",
    "slurmddp logs steps | grep -m 2 -e resumed -e step",
    "slurmddp submit --nodes 2 --gpus-per-node 2 --wait bad.py 2>/dev/null",
    "slurmddp diagnose bad | head -n 4",
)


def run(line: str) -> str:
    """Return what a line of bash prints, on both streams."""
    done = subprocess.run(["/bin/bash", "-c", line], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def show(console: Console, line: str) -> None:
    """Run a line, and draw it with what it prints."""
    console.print(Text.assemble(("$ ", "bold green"), (line, "bold")), no_wrap=True)
    for text in run(line).replace(str(Path.cwd()), "/home/me").splitlines():
        console.print(Text(text if len(text) <= WIDTH else f"{text[: WIDTH - 3]}..."), no_wrap=True)


def wait_until(pattern: str, line: str) -> None:
    """Wait until what a line prints has a text."""
    until = time.monotonic() + LIMIT_S
    while not re.search(pattern, run(line)):
        if time.monotonic() > until:
            raise TimeoutError(f"{line}: {pattern}")
        time.sleep(1)


def main() -> None:
    """Write the two scripts here, play the lines, and write the picture."""
    text = EXAMPLE.read_text()
    Path("steps.py").write_text(text)
    Path("bad.py").write_text(text.replace(LOSS, FAULT + LOSS, 1))
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    submit, preempt, *others = SHOWN
    show(console, submit)
    wait_until("step 100 ", "slurmddp logs steps")
    show(console, preempt)
    wait_until("resumed", "slurmddp logs steps")
    for line in others:
        show(console, line)
    svg = re.sub(r"@font-face \{.*?\}\s*", "", console.export_svg(title="slurmddp"), flags=re.DOTALL)
    Path(sys.argv[1]).write_text("\n".join(line.rstrip() for line in svg.splitlines()) + "\n")


if __name__ == "__main__":
    main()

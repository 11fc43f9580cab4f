"""The copy of an environment on each node's disk that docs/environments.md shows, on a real Slurm."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "environments.md"
PROGRAM = """
import os, sys
print("in", sys.prefix, os.environ["VIRTUAL_ENV"], flush=True)
"""
pytestmark = pytest.mark.long


def test_the_ranks_run_the_copy_which_is_gone_after_the_job(cli, small_environment, tmp_path):
    found = [path for path in sys.path if path.endswith("site-packages")]
    (packages,) = small_environment.glob("lib/*/site-packages")
    (packages / "tests.pth").write_text("\n".join([*found, str(PAGE.parents[1])]))
    small_environment.rename(tmp_path / "env")
    subprocess.run(["tar", "-C", tmp_path, "-cf", tmp_path / "env.tar", "env"], check=True)
    (tmp_path / "env").rename(tmp_path / "away")
    text = re.findall(r"```toml\n(launcher.*?)```", PAGE.read_text(), re.DOTALL)[0]
    (tmp_path / "job.toml").write_text(text.replace("COPY=", f"COPY={tmp_path}").replace("$HOME", str(tmp_path)))
    (tmp_path / "tmp").mkdir()
    (tmp_path / "train.py").write_text(PROGRAM)
    cli("submit", "job.toml", "--nodes=1", "--ntasks-per-node=2", "--name=copied", "--wait", "train.py")
    said = [path.read_text() for path in (tmp_path / "jobs/copied/logs").glob("*/*/[0-9].out")]
    copies = [re.findall(r"^in (\S+-0/env) \1$", text, re.MULTILINE) for text in said]
    assert [len(found) for found in copies] == [1, 1], said
    assert not [*(tmp_path / "tmp").iterdir()]

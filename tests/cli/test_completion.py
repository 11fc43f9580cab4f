"""bash completes commands, runs and files."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from slurmddp.runs.layout import RunDir

COMPLETE = r"""
. ./completion.bash
compopt() { echo "files"; }
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_slurmddp_completion slurmddp
printf '%s\n' "${COMPREPLY[@]}"
"""


def ask_for_script(shell, environ):
    """Return what the line in a shell's start file evaluates."""
    asking = {**environ, "_SLURMDDP_COMPLETE": f"{shell}_source"}
    done = subprocess.run(["slurmddp"], env=asking, capture_output=True, check=True)
    assert done.stderr == b""
    return done.stdout


@pytest.fixture
def completed(tmp_path, monkeypatch):
    """Return a function that lets bash complete the last of some words, and returns what it offers."""
    monkeypatch.chdir(tmp_path)
    for name, number in (("mnist", "17"), ("mlp", "170"), ("gpt", "18")):
        run = RunDir.named("jobs", name)
        run.create()
        run.submissions.write_text(json.dumps({"job": number}) + "\n")
    environ = {"PATH": f"{Path(sys.executable).parent}:/bin:/usr/bin", "HOME": str(tmp_path)}

    Path("completion.bash").write_bytes(ask_for_script("bash", environ))

    def complete(*words):
        command = ["bash", "-c", COMPLETE, "bash", "slurmddp", *words]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
        assert done.stderr == ""
        return done.stdout.split()

    return complete


def test_bash_completes_commands_runs_jobs_choices_and_files(completed):
    assert completed("stat") == ["status"]
    assert completed("status", "m") == completed("cancel", "gpt", "m") == ["mlp", "mnist"]
    assert completed("requeue", "17") == ["170", "17"]
    assert completed("submit", "--launcher", "f") == ["fork"]
    assert completed("submit", "--partition", "") == []
    assert completed("submit", "tr") == completed("submit", "train.py", "--lr") == ["files"]
    assert "--gpus-per-node" in completed("submit", "--gpus")
    for name in ("m$(touch pwned)", "m\nine", "m'n"):
        Path("jobs", name).mkdir()
        Path("jobs", name, "submissions.jsonl").write_text('{"job": 19}\n')
    assert completed("status", "m") == ["mlp", "mnist"], "what a shell would run is no run's name"
    assert completed("status", "19") == ["19", "19", "19"]
    Path("slurmddp.toml").write_text("nodes = [")
    assert completed("status", "m") == [], "what is wrong is no answer, and no words either"


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_their_script(shell):
    environ = {"PATH": f"{Path(sys.executable).parent}:/bin:/usr/bin"}
    assert f"_SLURMDDP_COMPLETE={shell}_complete" in ask_for_script(shell, environ).decode()

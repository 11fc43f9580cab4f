"""Which sandbox a command uses, and what it prints when that one is not up. No Slurm."""

import json
import subprocess
import sys
from dataclasses import asdict

import pytest

from slurmddp import sandbox as sandboxes
from slurmddp.cli import run_command_line
from slurmddp.sandbox import state_directory
from slurmddp.sandbox.state_directory import Files, Process


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(state_directory, "_PLACE", tmp_path)
    monkeypatch.delenv("SLURM_CONF", raising=False)


@pytest.fixture
def cli(capsys):
    """Return a function that runs a command of the sandbox and returns what it printed."""

    def run(*words, status=0):
        ended = run_command_line(["sandbox", *words])
        printed = capsys.readouterr()
        assert ended == status, printed.out + printed.err
        return printed

    return run


@pytest.fixture
def use(monkeypatch):
    """Return a function that lets the shell use the sandbox of that name."""
    return lambda name: monkeypatch.setenv("SLURM_CONF", str(Files.of_sandbox(name).slurm_conf))


@pytest.fixture
def start():
    """Return a function that writes the files of a sandbox whose first process runs."""

    def write(name):
        state_directory.ensure_base_folder()
        files = Files.of_sandbox(name)
        files.make(sandboxes.Plan(name=name))
        files.process.write_text(json.dumps(asdict(Process(child.pid, state_directory._start(child.pid)))))

    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        yield write
        child.kill()


def test_without_a_name_it_is_the_sandbox_of_the_shell_else_the_default(cli, start, use, monkeypatch):
    start("default")
    start("newcomer")
    assert "/default/etc/slurm.conf" in cli("env").out
    use("newcomer")
    assert "/newcomer/etc/slurm.conf" in cli("env").out
    assert "/default/etc/slurm.conf" in cli("env", "--name", "default").out
    monkeypatch.setenv("SLURM_CONF", "/etc/newcomer/etc/slurm.conf")
    assert "/default/etc/slurm.conf" in cli("env").out


@pytest.mark.parametrize("words", [["env"], ["kill", "n1"], ["boot", "n1"], ["cut", "n1"], ["preempt", "17"]])
def test_an_error_names_the_sandboxes_that_are_up_and_the_command(cli, start, words):
    start("newcomer")
    start("other")
    assert cli(*words, status=3).err == (
        "Error: sandbox 'default' is not up; up are: newcomer other; "
        f"type: slurmddp sandbox {' '.join(words)} --name newcomer\n"
    )


def test_status_and_down_name_them_too(cli, start):
    start("newcomer")
    assert cli("status", status=1).out == (
        "sandbox 'default' is not up; up are: newcomer; type: slurmddp sandbox status --name newcomer\n"
    )
    assert cli("down").err == (
        "sandbox 'default' was not up; up are: newcomer; type: slurmddp sandbox down --name newcomer\n"
    )


def test_a_sandbox_of_the_shell_that_has_ended_is_not_replaced_by_the_default(cli, start, use):
    start("default")
    use("newcomer")
    assert cli("down").err == (
        "sandbox 'newcomer' was not up; up are: default; type: slurmddp sandbox down --name default\n"
    )


def test_where_none_is_up_the_message_says_how_to_start_it(cli):
    started = "is not up; start it with: slurmddp sandbox up"
    assert cli("env", status=3).err == f"Error: sandbox 'default' {started}\n"
    assert cli("env", "--name", "a", status=3).err == f"Error: sandbox 'a' {started} --name a\n"
    assert cli("status", status=1).out == f"sandbox 'default' {started}\n"
    assert cli("down").err == "sandbox 'default' was not up\n"


def test_up_says_how_to_use_it_from_a_shell_that_uses_another(cli, use, monkeypatch):
    monkeypatch.setattr(sandboxes, "up", lambda *_, **__: None)
    assert cli("up").err.endswith('type:\n  eval "$(slurmddp sandbox env)"\n')
    use("newcomer")
    assert cli("up").err.endswith('type:\n  eval "$(slurmddp sandbox env --name default)"\n')


def test_the_help_of_up_says_what_each_partition_is_for(cli):
    lines = dict(line.split(maxsplit=1) for line in cli("up", "--help").out.splitlines() if len(line.split()) > 1)
    assert lines["gpu"] == "the default; no job preempts its jobs"
    assert lines["low"] == "jobs of gpu, high, short preempt its jobs after 10 s of grace time"
    assert lines["nograce"] == "as low, without grace time"
    assert lines["cancel"] == "as low, but its jobs are cancelled, not requeued"
    assert lines["high"] == "as gpu, but its jobs start before those of gpu and short"
    assert lines["short"] == "as gpu, with a time limit of 10 minutes"

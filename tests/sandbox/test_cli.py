"""`slurmddp sandbox`, as people type it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("slurm_programs")


@pytest.fixture(scope="module")
def name():
    """Return the name of a sandbox that the first test brings up and the last one ends."""
    unique = f"cli-{os.getpid()}"
    yield unique
    _run("down", "--name", unique)


def _run(*words):
    command = [sys.executable, "-c", "from slurmddp.cli import main; main()", "sandbox", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def test_before_it_is_up(name):
    assert _run("status", "--name", name).returncode == 1
    assert json.loads(_run("status", "--json", "--name", name).stdout)["up"] is False
    for command in (
        ["env"],
        ["kill", "n1"],
        ["boot", "n1"],
        ["disconnect", "n1"],
        ["reconnect", "n1"],
        ["preempt", "17"],
    ):
        result = _run(*command, "--name", name)
        assert result.returncode == 3
        assert result.stderr.startswith(f"Error: sandbox '{name}' is not up; ")


def test_up_keeps_stdout_clean_and_says_how_to_go_on(name):
    result = _run("up", "--name", name, "--nodes", "1", "--gpus-per-node", "2", "--cpus-per-node", "3")
    assert result.returncode == 0, result.stderr
    assert result.stdout == ""
    assert f'eval "$(slurmddp sandbox env --name {name})"' in result.stderr
    assert result.stderr.splitlines()[:3] == ["starting munged", "starting slurmctld", "starting n1"]
    again = _run("up", "--name", name)
    assert again.returncode == 2
    assert again.stderr.startswith(f"Error: sandbox '{name}' is already up")


def test_env_points_a_shell_at_it(name):
    lines = _run("env", "--name", name).stdout
    shell = ["bash", "-c", f'{lines}\nsinfo -h -p gpu -o "%c %G"']
    assert subprocess.run(shell, capture_output=True, text=True, check=True).stdout == "3 gpu:2\n"


def test_a_shell_that_uses_it_needs_no_name(name, monkeypatch):
    shell = ["bash", "-c", f'{_run("env", "--name", name).stdout}\necho "$SLURM_CONF"']
    shown = subprocess.run(shell, capture_output=True, text=True, check=True)
    monkeypatch.setenv("SLURM_CONF", shown.stdout.strip())
    assert _run("env").stdout == _run("env", "--name", name).stdout
    assert json.loads(_run("status", "--json").stdout)["name"] == name
    for command, state in (("kill", "off"), ("boot", "on"), ("disconnect", "disconnected"), ("reconnect", "connected")):
        assert _run(command, "n1").stderr == f"n1 is {state}\n"
    assert "job 5 has ended, or there was none" in _run("preempt", "5").stderr


def test_status_names_nodes_daemons_and_logs(name):
    result = _run("status", "--name", name)
    assert result.returncode == 0
    assert "IDLE" in result.stdout
    report = json.loads(_run("status", "--json", "--name", name).stdout)
    assert [(node["name"], node["state"]) for node in report["nodes"]] == [("n1", "IDLE")]
    assert [daemon["name"] for daemon in report["daemons"]] == ["munged", "slurmctld"]
    assert all(Path(part["log"]).exists() for part in report["nodes"] + report["daemons"])


def test_kill_and_boot(name):
    assert _run("kill", "n1", "--name", name).returncode == 0
    assert json.loads(_run("status", "--json", "--name", name).stdout)["nodes"][0]["state"] == "off"
    assert _run("boot", "n1", "--name", name).returncode == 0
    assert json.loads(_run("status", "--json", "--name", name).stdout)["nodes"][0]["state"] == "IDLE"
    wrong = _run("kill", "n2", "--name", name)
    assert (wrong.returncode, wrong.stderr) == (2, "Error: no node 'n2' in this sandbox; its nodes are n1\n")


def test_disconnect_and_reconnect(name):
    assert _run("disconnect", "n1", "--name", name).stderr == "n1 is disconnected\n"
    assert "(cut)" in _run("status", "--name", name).stdout
    assert json.loads(_run("status", "--json", "--name", name).stdout)["nodes"][0]["state"].endswith(" (cut)")
    assert _run("reconnect", "n1", "--name", name).stderr == "n1 is connected\n"
    assert json.loads(_run("status", "--json", "--name", name).stdout)["nodes"][0]["state"] == "IDLE"


def test_the_former_names_of_commands_work_and_are_hidden():
    assert all(name not in _run("--help").stdout.split() for name in ("cut", "heal"))
    for name, help_text in (("cut", "Disconnect NODE"), ("heal", "Connect NODE")):
        assert help_text in _run(name, "--help").stdout


def test_preempt_without_a_name_means_the_run_that_was_submitted_last(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "nothing was submitted in jobs yet" in _run("preempt").stderr


def test_preempt(name):
    shell = f'{_run("env", "--name", name).stdout}\nsbatch --parsable -p low -o /dev/null --wrap "sleep 99"'
    job = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=True).stdout.strip()
    done = _run("preempt", job, "--name", name)
    while done.stderr.endswith("only a running job can be preempted\n"):
        done = _run("preempt", job, "--name", name)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", f"job {job} is preempted\n")
    wrong = _run("preempt", "5", "--name", name)
    assert wrong.returncode == 3 and "job 5 has ended, or there was none" in wrong.stderr


def test_down_and_down_again(name):
    assert _run("down", "--name", name).stderr == f"sandbox '{name}' is down\n"
    result = _run("down", "--name", name)
    assert result.returncode == 0
    assert result.stderr.startswith(f"sandbox '{name}' was not up")


def test_the_help_cuts_no_sentence():
    assert "..." not in _run("--help").stdout.partition("Commands:")[2]


def test_a_bad_name_is_a_usage_error():
    result = _run("status", "--name", "../x")
    assert result.returncode == 2
    assert result.stderr.startswith("Error: --name '../x': use")

"""`slurmddp sandbox`, as people type it: the commands in their order on one sandbox, and the messages without any."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from slurmddp import sandbox as room
from slurmddp.cli import run_command_line
from slurmddp.sandbox import state_directory
from slurmddp.sandbox.state_directory import Files, Process


@pytest.fixture(scope="module")
def name(slurm_programs):  # noqa: ARG001 it skips where there are none
    """Return the name of a sandbox that the first test brings up and the last one ends."""
    unique = f"cli-{os.getpid()}"
    yield unique
    room.down(unique)


@pytest.fixture
def cli(capsys):
    """Return a function that runs a command of the sandbox, and returns what it printed."""

    def run(*words, status=0):
        ended = run_command_line(["sandbox", *words])
        printed = capsys.readouterr()
        assert ended == status, printed.out + printed.err
        return printed

    return run


@pytest.fixture
def state(cli, name):
    """Return a function that returns the state of the only node."""
    return lambda: json.loads(cli("status", "--json", "--name", name).out)["nodes"][0]["state"]


def shell(lines):
    return subprocess.run(["bash", "-c", lines], capture_output=True, text=True, check=True).stdout


def test_up_keeps_stdout_clean_and_says_how_to_go_on(cli, name):
    assert json.loads(cli("status", "--json", "--name", name, status=1).out)["up"] is False
    for command in (["boot", "n1"], ["cut", "n1"], ["heal", "n1"]):
        assert cli(*command, "--name", name, status=3).err.startswith(f"Error: sandbox '{name}' is not up; ")
    said = cli("up", "--name", name, "--nodes", "1", "--gpus-per-node", "2", "--cpus-per-node", "3")
    assert said.out == ""
    assert f'eval "$(slurmddp sandbox env --name {name})"' in said.err
    assert said.err.splitlines()[:3] == ["starting munged", "starting slurmctld", "starting n1"]
    again = cli("up", "--name", name, status=2)
    assert again.err == (
        f"Error: sandbox '{name}' is already up; give another --name, or use it, by typing: "
        f'eval "$(slurmddp sandbox env --name {name})"\n'
    )


def test_env_points_a_shell_at_it_which_then_needs_no_name(cli, name, monkeypatch):
    env = cli("env", "--name", name).out
    assert shell(f'{env}\nsinfo -h -p gpu -o "%c %G"') == "3 gpu:2\n"
    monkeypatch.setenv("SLURM_CONF", shell(f'{env}\necho "$SLURM_CONF"').strip())
    assert cli("env").out == env
    assert json.loads(cli("status", "--json").out)["name"] == name
    assert "Slurm does not know job 5; `slurmddp status` lists the jobs" in cli("preempt", "5", status=3).err


def test_status_names_nodes_daemons_and_logs(cli, name):
    shown = cli("status", "--name", name).out.splitlines()
    assert shown[0].startswith(f"sandbox '{name}' is up in ")
    assert ["NAME", "STATE", "LOG"] in map(str.split, shown) and shown[-1].split()[:2] == ["n1", "IDLE"]
    report = json.loads(cli("status", "--json", "--name", name).out)
    assert [(node["name"], node["state"]) for node in report["nodes"]] == [("n1", "IDLE")]
    assert [daemon["name"] for daemon in report["daemons"]] == ["munged", "slurmctld"]
    assert all(Path(part["log"]).exists() for part in report["nodes"] + report["daemons"])


def test_a_node_is_switched_off_and_on_and_its_link_is_cut(cli, name, state):
    for command, said, seen in (
        *(("kill", "off", "off"), ("boot", "on", "IDLE")),
        *(("cut", "cut off", "IDLE (cut)"), ("heal", "connected", "IDLE")),
    ):
        assert cli(command, "n1", "--name", name).err == f"n1 is {said}\n"
        assert state() == seen
    wrong = cli("kill", "n2", "--name", name, status=2)
    assert wrong.err == "Error: no node 'n2' in this sandbox; its nodes are n1\n"


def test_preempt(cli, name, tmp_path, monkeypatch, capsys):
    env = cli("env", "--name", name).out
    job = shell(f'{env}\nsbatch --parsable -p low -o /dev/null --wrap "sleep 99"').strip()
    while run_command_line(["sandbox", "preempt", job, "--name", name]):
        assert capsys.readouterr().err.endswith("only a running job can be preempted\n")
    done = capsys.readouterr()
    assert (done.out, done.err) == ("", f"job {job} is preempted\n")
    monkeypatch.chdir(tmp_path)
    assert "nothing was submitted in jobs yet" in cli("preempt", status=2).err


def test_down_and_down_again(cli, name, monkeypatch):
    with monkeypatch.context() as shell_of_it:
        shell_of_it.setenv("SLURM_CONF", cli("env", "--name", name).out.partition("SLURM_CONF=")[2].split()[0])
        said = f"sandbox '{name}' is down\nthis shell still uses it; type: unset SLURM_CONF\n"
        assert cli("down", "--name", name).err == said
    assert cli("down", "--name", name).err.startswith(f"sandbox '{name}' was not up")


def test_the_help_cuts_no_sentence(cli):
    assert "..." not in cli("--help").out.partition("Commands:")[2]


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Look for sandboxes in an empty folder."""
    monkeypatch.setattr(state_directory, "_PLACE", tmp_path)
    monkeypatch.delenv("SLURM_CONF", raising=False)


@pytest.fixture
def use(monkeypatch):
    """Return a function that lets the shell use the sandbox of that name."""
    return lambda name: monkeypatch.setenv("SLURM_CONF", str(Files.of_sandbox(name).slurm_conf))


@pytest.fixture
def start(place):  # noqa: ARG001 in that folder
    """Return a function that writes the files of a sandbox whose first process runs."""

    def write(name):
        state_directory.ensure_base_folder()
        files = Files.of_sandbox(name)
        files.make(room.Plan(name=name))
        files.process.write_text(json.dumps(Process(child.pid, state_directory._start(child.pid))._asdict()))

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


def test_a_sandbox_of_the_shell_that_has_ended_is_not_replaced_by_the_default(cli, start, use):
    start("default")
    use("newcomer")
    assert cli("down").err == "sandbox 'newcomer' was not up\nthis shell still uses it; type: unset SLURM_CONF\n"
    assert "unset" not in cli("down", "--name", "default").err


@pytest.mark.usefixtures("place")
def test_where_it_is_not_up_the_message_says_how_to_start_it(cli):
    started = "is not up; start it with: slurmddp sandbox up"
    assert cli("env", status=3).err == f"Error: sandbox 'default' {started}\n"
    assert cli("env", "--name", "a", status=3).err == f"Error: sandbox 'a' {started} --name a\n"
    assert cli("status", status=1).out == f"sandbox 'default' {started}\n"
    assert cli("down").err == "sandbox 'default' was not up\n"


@pytest.mark.usefixtures("place")
def test_up_says_how_to_use_it_from_a_shell_that_uses_another(cli, use, monkeypatch):
    monkeypatch.setattr(room, "up", lambda *_, **__: None)
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

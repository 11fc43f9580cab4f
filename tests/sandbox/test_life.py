"""Sandboxes come up, lose nodes, end, and leave nothing; whatever ends them."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from polling import until

from slurmddp import sandbox as room
from slurmddp.config.job_spec import JobSpec
from slurmddp.errors import ClusterError, UsageError
from slurmddp.sandbox import cluster, state_directory
from slurmddp.sandbox.state_directory import Files
from slurmddp.script.render import render

pytestmark = pytest.mark.usefixtures("slurm_programs")

DAEMONS = {"munged", "slurmctld", "slurmd", "slurmstepd"}


@pytest.fixture
def name():
    """Return a name that no other sandbox has, and end what is left of it."""
    unique = f"life-{os.getpid()}"
    yield unique
    room.down(unique)


def _processes(folder):
    """Return the processes that were given that folder's slurm.conf: their names, each with the last of its pids."""
    marker = b"SLURM_CONF=" + os.fsencode(folder)
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if marker in (entry / "environ").read_bytes():
                found[(entry / "comm").read_text().strip()] = int(entry.name)
    return found


def _small(name, **more):
    return room.Plan(name=name, nodes=1, gpus_per_node=0, **more)


def _answer(sandbox, *command, **options):
    env = {**os.environ, **sandbox.environment()}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=True, **options).stdout


def test_two_sandboxes_do_not_see_each_other(sandbox, name):
    other = room.up(_small(name), die_with_parent=True)
    assert _answer(other, "sinfo", "-h", "-p", "gpu", "-N", "-o", "%N").split() == ["n1"]
    assert _answer(sandbox, "sinfo", "-h", "-p", "gpu", "-N", "-o", "%N").split() == ["n1", "n2"]
    assert f"sandbox-{name}" in _answer(other, "scontrol", "show", "config")


TOPOLOGY = """\
SwitchName=leaf1 Nodes=n2
SwitchName=leaf2 Nodes=n1
SwitchName=top Switches=leaf[1-2]
"""
RANKS = """{% extends "base.sbatch.j2" %}{% block launch %}
  srun bash -c 'echo "$SLURM_PROCID $SLURMD_NODENAME"' | sort -n >"$SLURMDDP_RUN_DIR/ranks"
  echo "$MASTER_ADDR" $SLURMDDP_HOSTS >"$SLURMDDP_RUN_DIR/hosts"
  echo "0 done" >"$SLURMDDP_ATTEMPT_DIR/0.end"
{% endblock %}"""


def test_the_nodes_of_a_job_are_in_the_order_of_its_ranks(name, tmp_path):
    """Slurm 26.05 lets the ranks follow the switches, here from n2 to n1."""
    (tmp_path / "topology.conf").write_text(TOPOLOGY)
    (tmp_path / "ranks.j2").write_text(RANKS)
    lines = ("TopologyPlugin=topology/tree", "SelectTypeParameters=")
    plan = room.Plan(name=name, gpus_per_node=0, slurm_conf=lines, etc=(str(tmp_path / "topology.conf"),))
    cluster = room.up(plan, die_with_parent=True)
    assert "topology/tree" in _answer(cluster, "scontrol", "show", "config")
    spec = JobSpec(
        job_name="x", nodes=2, ntasks_per_node=2, template=str(tmp_path / "ranks.j2"), runs_dir=str(tmp_path)
    )
    _answer(cluster, "sbatch", "--wait", input=render(spec), cwd=tmp_path)
    ranks = dict(line.split() for line in (tmp_path / "x" / "ranks").read_text().splitlines())
    head, *hosts = (tmp_path / "x" / "hosts").read_text().split()
    assert head == hosts[0] == ranks["0"] == ranks["1"]
    assert hosts[1] == ranks["2"] == ranks["3"]


def _machine():
    """Return what of the machine and of this process a sandbox must leave alone."""
    links = subprocess.run(["ip", "-oneline", "link"], capture_output=True, text=True, check=True).stdout
    descriptors = len(list(Path("/proc/self/fd").iterdir()))
    return links, Path("/etc/hosts").read_text(), Path("/proc/self/mounts").read_text(), descriptors


def test_the_machine_is_not_touched_and_down_ends_all_of_it_and_nothing_else(sandbox, name):
    assert not room.down(name) and not room.report(name)["up"]
    before = _machine()
    other = room.up(_small(name), die_with_parent=True)
    assert _machine()[:3] == before[:3]
    assert set(_processes(other.files.folder)) >= DAEMONS - {"slurmstepd"}
    other.down()
    assert _processes(other.files.folder) == {}
    assert not other.files.folder.exists()
    assert all(sandbox.daemons()["daemons"].values())
    assert _machine() == before
    assert not room.down(name)


def test_it_stays_when_its_caller_ends(name):
    script = f"from slurmddp import sandbox as s; s.up(s.Plan(name={name!r}, nodes=1, gpus_per_node=0))"
    subprocess.run([sys.executable, "-c", script], check=True)
    assert room.report(name)["up"]
    assert room.down(name)


def test_it_dies_with_its_parent_when_asked_to(name):
    script = (
        "import time; from slurmddp import sandbox as s;"
        f"s.up(s.Plan(name={name!r}, nodes=1, gpus_per_node=0), die_with_parent=True);"
        "print('up', flush=True); time.sleep(99)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as parent:
        parent.stdout.readline()
        folder = room.find(name).files.folder
        parent.kill()
    until(lambda: not folder.exists())
    until(lambda: not _processes(folder))


def test_killing_the_supervisor_ends_everything_and_the_next_up_cleans(name):
    first = room.up(_small(name))
    os.kill(first.files.supervisor().pid, signal.SIGKILL)
    until(lambda: not _processes(first.files.folder))
    until(lambda: first.files.supervisor() is None)
    assert first.files.folder.exists()
    assert not room.report(name)["up"]
    with pytest.raises(ClusterError, match="does not answer"):
        first.daemons()
    second = room.up(_small(name), die_with_parent=True)
    assert room.report(name)["up"]
    second.down()


@pytest.mark.parametrize("delay_s", [0.02, 0.1, 0.2])
def test_an_interrupted_up_leaves_nothing(name, delay_s):
    script = f"from slurmddp import sandbox as s; print(1, flush=True); s.up(s.Plan(name={name!r}))"
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", script], stdout=pipe, stderr=pipe) as caller:
        caller.stdout.readline()
        time.sleep(delay_s)
        caller.send_signal(signal.SIGINT)
    folder = Files.of_sandbox(name).folder
    assert not folder.exists()
    assert _processes(folder) == {}


def test_an_up_that_is_killed_leaves_nothing(name):
    script = f"from slurmddp import sandbox as s; s.up(s.Plan(name={name!r}), say=lambda line: print(line, flush=True))"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as caller:
        assert caller.stdout.readline() == b"munged\n"
        caller.kill()
    folder = Files.of_sandbox(name).folder
    until(lambda: not folder.exists())
    assert _processes(folder) == {}


@pytest.mark.parametrize(
    ("file", "text", "error", "said"),
    [
        (
            *("slurm_conf", "ClusterName=x\nSlurmctldHost=login\nNoSuchKey=1\n", UsageError),
            "^Slurm has no option 'NoSuchKey'; see --partition, --slurm-conf and --etc$",
        ),
        ("gres_conf", "NodeName=n1 Name=gpu NoSuchKey=1\n", ClusterError, r"n1 ended: .*NoSuchKey.*gres.conf$"),
    ],
)
def test_a_daemon_that_does_not_start_is_told_in_its_words_and_nothing_is_left(
    name, monkeypatch, file, text, error, said
):
    monkeypatch.setattr(cluster.configuration, file, lambda *_: text)
    with pytest.raises(error, match=said):
        room.up(room.Plan(name=name, nodes=1))
    assert not Files.of_sandbox(name).folder.exists()


def test_a_supervisor_that_does_not_start_is_an_error_with_its_words(name, monkeypatch):
    monkeypatch.setattr(cluster.sys, "executable", "/bin/false")
    with pytest.raises(ClusterError, match="did not start: it wrote nothing"):
        room.up(_small(name))


def test_a_node_that_is_not_idle_in_time_is_an_error(name, monkeypatch):
    monkeypatch.setattr(cluster, "_NODE_DEADLINE_S", 0)
    monkeypatch.setattr(cluster, "_is_usable", lambda *_: False)
    with pytest.raises(ClusterError, match="node n1 is "):
        room.up(_small(name, slurmd_timeout_s=1))
    assert not Files.of_sandbox(name).folder.exists()


def test_a_killed_node_takes_its_job_along_which_runs_again_when_it_is_back(name, tmp_path):
    sandbox = room.up(_small(name), die_with_parent=True)
    script = tmp_path / "job.sbatch"
    script.write_text('#!/bin/bash\necho start\n[ -n "$SLURM_RESTART_COUNT" ] || sleep 98765\n')
    output = tmp_path / "out"
    _answer(sandbox, "sbatch", "--requeue", "--open-mode=append", f"--output={output}", str(script))
    until(lambda: output.exists() and output.read_text() == "start\n")
    sandbox.kill("n1")
    assert not {"slurmd", "slurmstepd", "sleep"} & set(_processes(sandbox.files.folder))
    assert room.report(name)["nodes"][0]["state"] == "off"
    sandbox.boot("n1")
    assert room.report(name)["nodes"][0]["state"] != "off"
    until(lambda: output.read_text() == "start\nstart\n", timeout_s=60)
    sandbox.down()


def test_nobody_hears_a_node_die(name):
    """A power cut sends no goodbye: the other end of a connection must not see it closed."""
    sandbox = room.up(room.Plan(name=name, nodes=2, gpus_per_node=0), die_with_parent=True)
    serve = "import socket; s=socket.create_server(('', 20001)); c,_=s.accept(); print(c.recv(1))"
    listen = ["srun", "-wn1", "-n1", sys.executable, "-ISc", serve]
    env = {**os.environ, **sandbox.environment()}
    with subprocess.Popen(listen, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        talk = (
            "import socket, time\n"
            "for _ in range(200):\n"
            "    try: c = socket.create_connection(('n1', 20001), 1); break\n"
            "    except OSError: time.sleep(0.05)\n"
            "print('connected', flush=True)\n"
            "c.settimeout(3)\n"
            "try: print('heard', c.recv(1))\n"
            "except TimeoutError: print('silence')\n"
        )
        client = ["srun", "-wn2", "-n1", "-u", sys.executable, "-ISc", talk]
        with subprocess.Popen(client, env=env, stdout=subprocess.PIPE, text=True) as other:
            assert other.stdout.readline() == "connected\n"
            sandbox.kill("n1")
            assert other.stdout.readline() == "silence\n"
        server.kill()
    sandbox.down()


def test_a_slurmd_that_crashed_can_be_booted(name):
    sandbox = room.up(_small(name), die_with_parent=True)
    os.kill(_processes(sandbox.files.folder)["slurmd"], signal.SIGKILL)
    until(lambda: not sandbox.daemons()["nodes"]["n1"])
    sandbox.boot("n1")
    sandbox.boot("n1")
    assert _answer(sandbox, "srun", "-n1", "hostname") == "n1\n"
    sandbox.down()


def test_a_controller_that_crashed_is_reported(name):
    sandbox = room.up(_small(name), die_with_parent=True)
    os.kill(_processes(sandbox.files.folder)["slurmctld"], signal.SIGKILL)
    until(lambda: not sandbox.daemons()["daemons"]["slurmctld"])
    report = room.report(name)
    assert {part["name"]: part["state"] for part in report["daemons"]} == {"munged": "running", "slurmctld": "ended"}
    assert [part["state"] for part in report["nodes"]] == ["UNKNOWN"]
    assert report["daemons"][1] == {"name": "slurmctld", "state": "ended", "log": str(sandbox.files.log("slurmctld"))}
    with pytest.raises(ClusterError, match="slurmctld ended"):
        sandbox.wait_for_nodes(["n1"], cluster._now())
    sandbox.down()


def test_an_unknown_node_is_refused(sandbox):
    for act in (sandbox.kill, sandbox.boot, sandbox.disconnect, sandbox.reconnect):
        with pytest.raises(UsageError, match="its nodes are n1 n2"):
            act("n3")


def test_the_environment_names_no_other_sandbox(sandbox, monkeypatch):
    other = state_directory.base_folder() / "other" / "bin"
    monkeypatch.setenv("PATH", f"{other}:/usr/bin:/bin")
    assert sandbox.environment()["PATH"] == f"{sandbox.files.bin}:/usr/bin:/bin"


def test_files_that_cannot_be_written_are_not_left(name, monkeypatch):
    monkeypatch.setattr(Path, "symlink_to", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        room.up(_small(name))
    assert not Files.of_sandbox(name).folder.exists()


def test_the_supervisor_refuses_to_run_outside_namespaces_of_its_own(tmp_path):
    """At its end it kills every process it can see."""
    done = subprocess.run(
        [sys.executable, "-m", "slurmddp.sandbox.first_process", tmp_path], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "type: slurmddp sandbox up" in done.stderr


def test_a_start_that_takes_too_long_is_ended_and_its_log_is_shown(monkeypatch):
    """A process that says nothing stands for the sandbox's first one."""
    process = subprocess.Popen(["sleep", "60"], stdout=subprocess.PIPE)
    monkeypatch.setattr(cluster, "_UP_DEADLINE_S", 0.1)
    monkeypatch.setattr(cluster, "_write_files", lambda *_: None)
    monkeypatch.setattr(cluster, "_start_supervisor", lambda _: (process, os.open(os.devnull, os.O_RDONLY)))
    files = SimpleNamespace(
        supervisor=lambda: process if process.poll() is None else None, last_log_lines=lambda _: "munged waits"
    )
    with pytest.raises(ClusterError, match="the sandbox did not start: munged waits"):
        cluster._start(SimpleNamespace(), files, print, die_with_parent=True)
    assert process.poll() is not None

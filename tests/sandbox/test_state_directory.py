import os
import subprocess
import sys

import pytest

from slurmddp.errors import ClusterError, UsageError
from slurmddp.sandbox import Plan, Shape, state_directory
from slurmddp.sandbox.state_directory import Files, Process


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(state_directory, "_PLACE", tmp_path)
    return tmp_path / f"slurmddp-sandbox-{os.getuid()}"


@pytest.fixture
def child():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def _identity(pid):
    return Process(pid, state_directory._start(pid))


def test_a_process_is_itself():
    assert Process.current().alive
    assert Process.current().pid == os.getpid()


def test_a_later_process_of_the_same_number_is_another_and_is_not_killed(child):
    other = Process(child.pid, _identity(child.pid).start - 1)
    assert not other.alive
    other.kill()
    assert child.poll() is None


def test_killed_means_gone(child):
    process = _identity(child.pid)
    process.kill()
    assert not process.alive


def test_killing_what_has_ended_is_fine(child):
    process = _identity(child.pid)
    child.kill()
    child.wait()
    process.kill()


def test_a_process_that_ends_just_before_it_is_killed_is_fine(child, monkeypatch):
    def lose_process(*_):
        child.communicate(b"\n")
        raise ProcessLookupError

    process = _identity(child.pid)
    monkeypatch.setattr(state_directory.os, "kill", lose_process)
    process.kill()
    assert not process.alive


def test_a_process_that_does_not_end_is_an_error(child, monkeypatch):
    monkeypatch.setattr(state_directory, "_KILL_DEADLINE_S", 0.01)
    monkeypatch.setattr(state_directory.os, "kill", lambda *_: None)
    with pytest.raises(state_directory.SlurmddpError, match=f"process {child.pid} does not end"):
        _identity(child.pid).kill()


def test_the_folder_of_all_sandboxes_is_private(place):
    assert state_directory.ensure_base_folder() == place
    assert place.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_others_can_enter_is_refused(place):
    place.mkdir(mode=0o755)
    with pytest.raises(ClusterError, match="not a folder that only you can enter"):
        state_directory.ensure_base_folder()


def test_a_link_is_refused(place, tmp_path):
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    place.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ClusterError, match="not a folder that only you can enter"):
        state_directory.ensure_base_folder()


def test_somebody_elses_folder_is_refused(place, monkeypatch):
    place.mkdir(mode=0o700)
    monkeypatch.setattr(state_directory, "base_folder", lambda: place)
    monkeypatch.setattr(state_directory.os, "getuid", lambda: 12345)
    with pytest.raises(ClusterError, match="not a folder that only you can enter"):
        state_directory.ensure_base_folder()


def test_a_name_cannot_lead_out_of_the_folder():
    with pytest.raises(UsageError, match="--name"):
        Files.of_sandbox("../x")


@pytest.mark.usefixtures("place")
def test_a_plan_is_read_as_written():
    state_directory.ensure_base_folder()
    files = Files.of_sandbox("a")
    plan = Plan(name="a", nodes=3, accounting=True, partitions=(Shape.parse("p:gpus=t4:1+l4:2,MaxTime=1"),))
    files.make(plan)
    assert files.read_plan() == plan
    assert state_directory.names() == ["a"]
    files.remove()
    assert state_directory.names() == []


@pytest.mark.usefixtures("place")
def test_a_sandbox_whose_process_is_gone_is_not_up():
    files = Files.of_sandbox("a")
    files.make(Plan(name="a"))
    assert files.supervisor() is None
    files.process.write_text('{"pid": 1, "start": 0}')
    assert files.supervisor() is None


def test_the_last_log_lines_of_a_daemon_are_its_logs_else_its_output(tmp_path):
    files = Files(tmp_path)
    files.logs.mkdir()
    assert "wrote nothing" in files.last_log_lines("n1")
    files.output("n1").write_text("a\nb\nc\nd\n")
    assert files.last_log_lines("n1").startswith("b | c | d (")
    files.log("n1").write_text("x\n")
    assert files.last_log_lines("n1") == f"x ({tmp_path}/log/slurmd-n1.log)"

import os
import subprocess
import sys

import pytest

from slurmddp.errors import ClusterError
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


def test_a_process_is_itself_and_a_later_one_of_the_same_number_is_another(child):
    assert Process.current().alive
    assert Process.current().pid == os.getpid()
    other = Process(child.pid, _identity(child.pid).start - 1)
    assert not other.alive
    other.kill()
    assert child.poll() is None


def test_killed_means_gone_and_can_be_said_again(child):
    process = _identity(child.pid)
    process.kill()
    assert not process.alive
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


@pytest.mark.parametrize("what", ["open to others", "a link", "another user's"])
def test_another_folder_of_that_name_is_refused(place, tmp_path, monkeypatch, what):
    if what == "a link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        place.symlink_to(tmp_path / "elsewhere")
    else:
        place.mkdir(mode=0o755 if what == "open to others" else 0o700)
    if what == "another user's":
        monkeypatch.setattr(state_directory, "base_folder", lambda: place)
        monkeypatch.setattr(state_directory.os, "getuid", lambda: 12345)
    with pytest.raises(ClusterError, match="not a folder that only you can enter"):
        state_directory.ensure_base_folder()


@pytest.mark.usefixtures("place")
def test_a_plan_is_read_as_written_and_without_its_process_the_sandbox_is_not_up():
    state_directory.ensure_base_folder()
    files = Files.of_sandbox("a")
    plan = Plan(name="a", nodes=3, accounting=True, partitions=(Shape.parse("p:gpus=t4:1+l4:2,MaxTime=1"),))
    files.make(plan)
    assert files.read_plan() == plan
    assert files.supervisor() is None
    files.process.write_text('{"pid": 1, "start": 0}')
    assert files.supervisor() is None
    assert state_directory.names() == ["a"]
    files.remove()
    assert state_directory.names() == []


def test_the_last_log_lines_of_a_daemon_are_its_logs_else_its_output(tmp_path):
    files = Files(tmp_path)
    files.logs.mkdir()
    assert "wrote nothing" in files.last_log_lines("n1")
    files.output("n1").write_text("a\nb\nc\nd\n")
    assert files.last_log_lines("n1").startswith("b | c | d (")
    files.log("n1").write_text("x\n")
    assert files.last_log_lines("n1") == f"x ({tmp_path}/log/slurmd-n1.log)"

"""Who may write a run's folder."""

import os
import random
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from slurmddp import exit_codes
from slurmddp.errors import FencedError
from slurmddp.runs.ownership import HeldError, Ownership, attempt_order, ownership_of, take_file


def test_the_attempt_that_the_file_names_may_write(tmp_path):
    (tmp_path / "owner").write_text("main 17 0.1\n")
    owner = ownership_of(tmp_path / "owner", {"SLURMDDP_OWNER": "main 17 0.1"})
    owner.check()


@pytest.mark.parametrize("line", ["main 18 0.0\n", "main 17 0.12\n", "other 17 0.1\n", "\x00main 17 0.1"])
def test_any_other_line_fences_and_is_named(tmp_path, line):
    (tmp_path / "owner").write_text(line)
    with pytest.raises(FencedError, match=f"^this attempt \\(main 17 0.1\\) .* names {line.strip()}; ") as caught:
        Ownership(tmp_path / "owner", "main 17 0.1").check()
    assert caught.value.exit_status == exit_codes.FENCED


@pytest.mark.parametrize("content", [None, b"", b"\n"])
def test_a_file_that_is_missing_or_empty_fences(tmp_path, content):
    if content is not None:
        (tmp_path / "owner").write_bytes(content)
    with pytest.raises(FencedError, match="names no attempt; "):
        Ownership(tmp_path / "owner", "main 17 0.1").check()


def test_the_file_is_read_anew_each_time(tmp_path):
    owner = Ownership(tmp_path / "owner", "main 17 0.1")
    (tmp_path / "owner").write_text("main 17 0.1\n")
    owner.check()
    (tmp_path / "next").write_text("main 17 1.0\n")
    (tmp_path / "next").replace(tmp_path / "owner")
    with pytest.raises(FencedError):
        owner.check()


@pytest.mark.parametrize("environment", [{}, {"SLURMDDP_OWNER": ""}])
def test_nobody_fences_where_no_owner_is_named(tmp_path, environment):
    assert ownership_of(tmp_path / "owner", environment) is None


def ended(line: str) -> str:
    """Say of each line but `ended` that its writer goes on."""
    return "" if line == "ended" else f"{line} goes on"


def test_who_takes_the_file_while_another_judges_its_holder_keeps_it(tmp_path):
    path = tmp_path / "owner"
    path.write_text("ended\n")

    def late(line):
        if line == "ended":
            take_file(path, "quick", ended)
        return ended(line)

    with pytest.raises(HeldError, match="^quick goes on$"):
        take_file(path, "slow", late)
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("owner", "quick\n")]


def test_what_a_process_leaves_that_was_killed_while_it_took_the_file_is_taken_over(tmp_path):
    for name in ("owner", "owner.next", "owner.next.next"):
        (tmp_path / name).write_text("ended\n")
    take_file(tmp_path / "owner", "new", ended)
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("owner", "new\n")]


def test_a_process_that_takes_the_file_and_goes_on_is_waited_for_and_named(tmp_path, monkeypatch):
    monkeypatch.setattr("slurmddp.runs.ownership.PAUSE_S", 0)
    (tmp_path / "owner.next").write_text("other\n")
    with pytest.raises(HeldError, match="owner.next names other: remove it if that has ended"):
        take_file(tmp_path / "owner", "new", ended)


TAKERS = ("a", "b", "c")


class KilledError(Exception):
    """Stands for SIGKILL."""


class Turns:
    """Lets threads do their steps on files in an order that a seed chooses; some are killed before a step."""

    def __init__(self, seed: int, killed_share: float) -> None:
        self.choose = random.Random(seed)  # noqa: S311 - no secret
        self.killed_share = killed_share
        self.changed = threading.Condition()
        self.working: set[str] = set()
        self.waiting: set[str] = set()
        self.killed: set[str] = set()

    def step(self, act, *args, **options):
        me = threading.current_thread().name
        with self.changed:
            self.working.remove(me)
            self.waiting.add(me)
            self.changed.notify_all()
            self.changed.wait_for(lambda: me in self.working)
        if me in self.killed:
            raise KilledError
        return act(*args, **options)

    def run(self, work, names) -> None:
        self.working.update(names)
        threads = [threading.Thread(target=self._finish, args=(work, name), name=name) for name in names]
        for thread in threads:
            thread.start()
        while True:
            with self.changed:
                self.changed.wait_for(lambda: not self.working)
                if not self.waiting:
                    break
                chosen = self.choose.choice(sorted(self.waiting))
                if self.choose.random() < self.killed_share:
                    self.killed.add(chosen)
                self.waiting.remove(chosen)
                self.working.add(chosen)
                self.changed.notify_all()
        for thread in threads:
            thread.join()

    def _finish(self, work, name: str) -> None:
        with suppress(KilledError, HeldError):
            work(name)
        with self.changed:
            self.working.remove(name)
            self.changed.notify_all()


@pytest.mark.parametrize("killed_share", [0, 0.03])
def test_in_any_order_of_the_steps_of_several_processes_one_takes_the_file(tmp_path, monkeypatch, killed_share):
    monkeypatch.setattr("slurmddp.runs.ownership.PAUSE_S", 0)
    turns = None

    def in_turn(act):
        def step(*args, **options):
            is_taker = threading.current_thread().name in TAKERS
            return turns.step(act, *args, **options) if is_taker else act(*args, **options)

        return step

    for where, name in ((os, "link"), (Path, "rename"), (Path, "unlink"), (Path, "read_text")):
        monkeypatch.setattr(where, name, in_turn(getattr(where, name)))
    for seed in range(300):
        turns, taken, owner = Turns(seed, killed_share), [], tmp_path / str(seed) / "owner"
        owner.parent.mkdir()
        owner.write_text("ended\n")

        def describe(line, turns=turns):
            return "" if line == "ended" or line in turns.killed else f"{line} goes on"

        def take(me, owner=owner, taken=taken, describe=describe):
            take_file(owner, me, describe)
            taken.append(me)

        turns.run(take, TAKERS)
        assert len(taken) == 1 or (turns.killed and not taken), (seed, taken, turns.killed)
        if taken:
            assert owner.read_text() == f"{taken[0]}\n"
        if not turns.killed:
            assert list(owner.parent.iterdir()) == [owner]


def test_the_order_of_attempts_is_that_of_their_numbers_whatever_a_record_says():
    assert sorted(["2.0", "0.10", "0.9"], key=attempt_order) == ["0.9", "0.10", "2.0"]
    assert attempt_order(f"{'9' * 5000}.0") == [-1, 0]

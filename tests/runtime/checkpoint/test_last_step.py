"""What a rank of a framework's Trainer saves alone after a fault; the group has one rank here."""

from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from torch import nn

from slurmddp.errors import FencedError
from slurmddp.runtime.checkpoint.last_step import LastStep


@pytest.fixture
def group():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield dist.group.WORLD
    dist.destroy_process_group()


@pytest.fixture
def training(group, tmp_path):
    return Training(group, tmp_path)


class Training:
    """A model in whose forward a random number is drawn, and what is kept of its last step."""

    def __init__(self, group, folder):
        self.module = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
        self.drawn, self.saved = 0, []
        rank = SimpleNamespace(rank=0, world_size=1, is_main=True, attempt="0.0", secret="of this attempt")  # noqa: S106
        stop = SimpleNamespace(group=group, stopping=SimpleNamespace(rank=rank), check_owner=lambda **_: None)
        self.last = LastStep(stop, self.module, lambda: {"drawn": self.drawn})
        self.new, self.final = folder / "new" / "survivor", folder / "final"

    def step(self, number, *, late=False):
        self.forward()
        self.last.share(number)
        self.change()
        self.drawn += late
        self.last.finish(number)

    def forward(self):
        self.module(torch.randn(4, 2))
        self.drawn += 1

    def change(self):
        with torch.no_grad():
            self.module[0].weight.add_(1)

    def save(self, then=lambda: None):
        def write(path, states, buffers):
            self.saved.append((states, {name: buffer.clone() for name, buffer in buffers.items()}))
            path.write_text("saved")
            then()

        self.last.save(self.new, self.final, write)


def test_it_saves_what_was_after_the_last_finished_step_and_changes_nothing_of_the_training(training, capsys):
    training.step(1)
    training.step(2)
    kept = {name: buffer.clone() for name, buffer in training.module.named_buffers()}
    training.forward()  # of step 3
    live = {name: buffer.clone() for name, buffer in training.module.named_buffers()}
    training.save()
    ((states, buffers),) = training.saved
    assert states == [{"drawn": 2}] and buffers.keys() == kept.keys()
    assert all(torch.equal(buffers[name], kept[name]) for name in kept)
    assert not torch.equal(live["1.running_mean"], kept["1.running_mean"])
    assert all(torch.equal(buffer, live[name]) for name, buffer in training.module.named_buffers())
    assert training.final.read_text() == "saved"
    assert capsys.readouterr().out == "rank 0 saved step 2, the last finished one\n"


def begin_the_next(training):
    training.change()


def share_the_next(training):
    training.forward()
    training.last.share(3)


def evaluate(training):
    training.last.forget()


def finish_without_its_states(training):
    training.last.finish(3)


@pytest.mark.parametrize("then", [begin_the_next, share_the_next, evaluate, finish_without_its_states])
def test_a_step_that_is_not_held_any_more_is_not_saved(training, then):
    training.step(2)
    then(training)
    training.save()
    assert not training.saved and not training.new.exists()


def test_a_step_is_saved_as_it_is_after_its_evaluation(training):
    training.step(2)
    training.last.forget()
    training.drawn += 10
    training.last.renew()
    training.save()
    assert training.saved[0][0] == [{"drawn": 11}]


def test_what_is_evaluated_before_the_first_step_is_no_step(training):
    training.last.forget()
    training.last.renew()
    training.save()
    assert not training.saved


def test_an_optimizer_that_begins_while_it_writes_makes_it_void(training):
    training.step(2)
    training.final.write_text("older")
    training.save(then=training.change)
    assert training.saved and training.final.read_text() == "older" and not training.new.exists()


def test_a_program_that_changes_its_state_after_it_was_sent_is_left_to_the_older_checkpoint(training):
    """Also at later steps: what another rank has sent cannot be trusted then."""
    training.step(1, late=True)
    training.save()
    training.step(2)
    training.save()
    assert not training.saved


def test_a_second_survivor_saves_nothing_and_says_nothing(training, capsys):
    """Neither while the first one does, nor afterwards."""
    training.step(2)
    training.save(then=training.save)
    training.save()
    assert len(training.saved) == 1 and capsys.readouterr().out.count("\n") == 1


def full():
    raise OSError(28, "No space left on device")


def not_owner(**_):
    raise FencedError("another attempt owns the run")


def test_a_full_disk_is_said_and_the_older_file_stays(training, capsys):
    training.step(2)
    training.final.write_text("older")
    training.save(then=full)
    assert capsys.readouterr().out == "rank 0 could not save step 2: [Errno 28] No space left on device\n"
    assert training.final.read_text() == "older" and not training.new.exists()


def test_a_rank_that_was_cut_off_replaces_nothing(training, capsys):
    training.step(2)
    training.final.write_text("older")
    training.last._stop.check_owner = not_owner
    training.save()
    assert "could not save step 2" in capsys.readouterr().out and training.final.read_text() == "older"


def test_a_state_that_is_too_large_to_be_sent_is_said(training, capsys):
    training.last._collect = lambda: {"drawn": "x" * 2**20}
    training.step(2)
    training.save()
    assert (
        capsys.readouterr().out == "rank 0 could not save step 2: it is not known what each rank alone had at its end\n"
    )
    assert not training.saved

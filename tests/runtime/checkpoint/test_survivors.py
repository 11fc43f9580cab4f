"""What a rank keeps after each step, what a survivor saves, and what the next start makes of it."""

import contextlib
import json
import multiprocessing
import random
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import nn

from slurmddp.errors import FencedError
from slurmddp.runtime.checkpoint import survivors
from slurmddp.runtime.checkpoint.own_states import OwnState, is_sealed, seal
from slurmddp.runtime.checkpoint.step_end import Gpu
from slurmddp.runtime.checkpoint.store import Store, ensure_identity
from slurmddp.runtime.checkpoint.survivors import Survivor, adopt
from slurmddp.runtime.checkpoint.training_state import TrainingState

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)


class Partners:
    """Gives each state to the other of two ranks at once."""

    ranks: ClassVar[dict[int, "Rank"]] = {}

    def __init__(self, session, *_):
        self._to, self.messages = 1 - session.rank, []

    def send(self, sealed):
        if self._to in self.ranks:
            messages = self.ranks[self._to].survivor._partners.messages
            messages[:] = [*messages[-2:], sealed]

    def receive(self):
        pass

    def kept(self, secret):
        return b"".join(sealed for sealed in self.messages if is_sealed(sealed, secret))


class Rank:
    """One of two ranks that train the same model, without a group."""

    def __init__(self, folder, number, said, norm=nn.BatchNorm1d, device=CPU):
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(4, 4), norm(4), nn.Dropout(0.5))
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.schedule = torch.optim.lr_scheduler.LinearLR(self.optimizer, 1.0, 0.1, 10)
        shared = {"optimizer": self.optimizer, "schedule": self.schedule}
        self.training = TrainingState(model=self.model, shared=shared, own={}, device=CPU)
        self.session = SimpleNamespace(
            device=device,
            control=object(),
            rank=number,
            world_size=2,
            is_main=not number,
            job="17",
            attempt="0.0",
            secret="known to this attempt",  # noqa: S106 - of this test
            print=said.append,
            list_ranks=lambda ranks: f"ranks {ranks}",
        )
        identity = ensure_identity(folder)
        self.store = Store(folder, identity=identity, keep=2, check_owner=lambda: None, say=said.append)
        self.survivor = Survivor(self.training, self.session, self.store)
        Partners.ranks[number] = self
        self.survivor.begin(0)

    def forward(self):
        self.loss = self.model(torch.ones(3, 4)).sum()

    def step(self, number, *, draws_late=False, draws_after_forward=False):
        torch.manual_seed(number)  # the same dropout on both, in place of averaged gradients
        self.forward()
        if draws_after_forward:
            random.random()  # noqa: S311 - no secret
        self.loss.backward()
        self.optimizer.step()
        if draws_late:
            random.random()  # noqa: S311 - no secret
        self.survivor.keep(number)


@pytest.fixture
def said():
    return []


@pytest.fixture
def ranks(tmp_path, said, monkeypatch):
    """Two ranks after four steps."""
    (tmp_path / "checkpoints").mkdir()
    monkeypatch.setattr(survivors, "Partners", Partners)
    monkeypatch.setattr(Partners, "ranks", {})
    monkeypatch.setattr(survivors, "write_event", lambda *_: None)
    made = [Rank(tmp_path / "checkpoints", number, said) for number in range(2)]
    for step in range(1, 5):
        for rank in made:
            rank.step(step)
    return made


def adopted(ranks):
    """Return the checkpoint that the next start has made; None without one."""
    adopt(ranks[0].store, ranks[0].session)
    assert not [*ranks[0].store.folder.glob(".survived-*")]
    return ranks[0].store.newest()


def test_a_survivor_saves_the_last_finished_step_whatever_the_one_in_flight_has_changed(ranks):
    for rank in ranks:  # of both the numbers of this process
        rank.survivor.keep(4)
    wanted, own = ranks[1].model.state_dict(), ranks[0].training.collect_own()
    wanted = {name: value.clone() for name, value in wanted.items()}
    buffers = {name: value.clone() for name, value in own["buffers"]["model"].items()}
    ranks[1].forward()
    assert not torch.equal(ranks[1].model[1].running_mean, wanted["1.running_mean"])
    ranks[1].survivor.save()
    saved = adopted(ranks)
    assert saved.step == 4
    model, states = (ranks[0].store.load(saved, name) for name in ("model.pt", "ranks.pt"))
    assert all(torch.equal(model[name], {**wanted, **buffers}[name]) for name in wanted)
    assert all(torch.equal(states[0]["buffers"]["model"][name], value) for name, value in buffers.items())
    assert torch.equal(states[0]["random"]["torch"], own["random"]["torch"])
    assert states[0]["random"]["python"] == own["random"]["python"]
    assert states[0]["random"]["numpy"][2:] == own["random"]["numpy"][2:]


def test_a_model_without_buffers_is_saved(ranks, tmp_path, said):
    (tmp_path / "other").mkdir()
    ranks[:] = [Rank(tmp_path / "other", number, said, norm=nn.LayerNorm) for number in range(2)]
    for rank in ranks:
        rank.step(1)
    ranks[0].forward()  # what rank 0 has after the step comes with its next message
    ranks[1].survivor.save()
    saved = adopted(ranks)
    assert saved, said
    assert "1.weight" in ranks[0].store.load(saved, "model.pt")


def test_what_a_step_in_flight_has_done_to_the_schedule_is_put_back(ranks):
    """A program may step its schedule, or set the rate, before the optimizer's step."""
    wanted, rate = ranks[1].schedule.state_dict(), ranks[1].optimizer.param_groups[0]["lr"]
    ranks[1].schedule.step()
    ranks[1].optimizer.param_groups[0]["lr"] = 7.0
    ranks[1].survivor.save()
    parts = ranks[0].store.load(adopted(ranks), "state.pt")["parts"]
    assert parts["schedule"] == wanted
    assert parts["optimizer"]["param_groups"][0]["lr"] == rate


def test_a_rank_that_died_after_its_gradients_has_the_state_of_after_its_forward(ranks, said):
    ranks[0].forward()
    ranks[0].survivor._note_begun(ranks[0].optimizer)  # and then it dies
    ranks[1].step(5)
    ranks[1].survivor.save()
    assert adopted(ranks).step == 5
    assert said[-1].startswith("ranks [0] was lost in step 4: random numbers and buffers are from within it")


def test_with_several_forwards_a_step_the_state_of_after_the_last_one_counts(ranks, said):
    for number in (5, 6, 7):
        for rank in ranks:
            torch.manual_seed(number)
            rank.forward()
            rank.step(number)
    for rank in ranks:
        rank.forward()
    ranks[0].forward()
    wanted = torch.get_rng_state()
    ranks[0].survivor._note_begun(ranks[0].optimizer)  # and then it dies
    ranks[1].step(8)
    ranks[1].survivor.save()
    saved = adopted(ranks)
    assert saved.step == 8
    assert torch.equal(ranks[0].store.load(saved, "ranks.pt")[0]["random"]["torch"], wanted)
    assert "was lost in step 7" in said[-1]


def test_where_a_program_draws_after_its_forward_the_state_of_when_its_gradients_are_there_counts(ranks, said):
    """So does the bundled worker with the sums of an epoch's losses."""
    for number in range(5, 9):
        for rank in ranks:
            rank.step(number, draws_after_forward=True)
    ranks[0].forward()
    drawn = (random.random(), random.getstate())  # noqa: S311 - no secret
    ranks[0].survivor._note_begun(ranks[0].optimizer)  # and then it dies
    ranks[1].step(9, draws_after_forward=True)
    ranks[1].survivor.save()
    saved = adopted(ranks)
    assert saved.step == 9, said
    assert ranks[0].store.load(saved, "ranks.pt")[0]["random"]["python"] == drawn[1]


def test_a_state_that_was_promised_and_then_changed_is_sent_with_the_next_message(ranks):
    ranks[0].step(5, draws_late=True)
    ranks[1].step(5)
    drawn = random.getstate()
    ranks[0].forward()
    ranks[0].survivor._note_begun(ranks[0].optimizer)
    random.seed(7)
    ranks[1].survivor.save()
    saved = adopted(ranks)
    assert saved.step == 5
    assert ranks[0].store.load(saved, "ranks.pt")[0]["random"]["python"] == drawn


@pytest.mark.parametrize("what", ["step-000000004/model.pt", "step-000000004/state.pt", "0", "1"])
@pytest.mark.parametrize("content", [b"", b"x" * 1000])
def test_what_a_damaged_disk_has_kept_does_not_stop_the_next_start(ranks, said, what, content):
    ranks[0].store.write(2, {"model.pt": {}}, {})
    for rank in ranks:
        rank.survivor.save()
    (folder,) = ranks[0].store.folder.glob(".survived-*")
    (folder / what).write_bytes(content)
    assert adopted(ranks).step == (4 if what in "01" and not content else 2)
    assert any("step 4, saved by a survivor, cannot be used" in line for line in said) == (
        what not in "01" or content != b""
    )


def test_a_disk_without_space_does_not_stop_the_next_start_but_a_lost_run_does(ranks, said, monkeypatch):
    ranks[0].store.write(2, {"model.pt": {}}, {})
    ranks[1].survivor.save()
    with monkeypatch.context() as patched:
        patched.setattr(ranks[0].store, "write", lambda *_: (_ for _ in ()).throw(FencedError("another owns it")))
        with pytest.raises(FencedError):
            adopt(ranks[0].store, ranks[0].session)
        full = OSError(28, "No space left on device")
        patched.setattr(ranks[0].store, "write", lambda *_: (_ for _ in ()).throw(full))
        assert adopted(ranks).step == 2
    assert said[-1] == f"step 4, saved by a survivor, cannot be used: {full}"


def test_where_a_rank_has_ever_drawn_after_its_forward_that_state_does_not_count(ranks, said):
    ranks[0].step(5, draws_late=True)
    ranks[1].step(5)
    ranks[0].forward()
    ranks[0].survivor._note_begun(ranks[0].optimizer)
    ranks[1].step(6)
    ranks[1].survivor.save()
    assert adopted(ranks) is None
    assert said[-1] == "step 6, saved by a survivor, cannot be used: the state of ranks [0] is lost"


def test_after_the_loop_was_left_a_rank_waits_for_no_other_and_still_saves_what_it_holds(ranks, monkeypatch):
    ranks[1].survivor.leave_loop()
    with monkeypatch.context() as alone:
        alone.setattr(Partners, "receive", lambda _: pytest.fail("waits"))
        ranks[1].forward()
    ranks[1].survivor.save()
    assert adopted(ranks).step == 4
    ranks[1].loss.backward()
    ranks[1].optimizer.step()
    assert not ranks[1].survivor._find_held()


def test_nothing_is_saved_once_an_optimizer_has_begun(ranks):
    ranks[1].forward()
    ranks[1].loss.backward()
    ranks[1].optimizer.step()
    ranks[1].survivor.save()
    assert adopted(ranks) is None


def zero(weight):
    with torch.no_grad():
        weight.zero_()


def zero_data(weight):
    weight.data.zero_()


def swap_data(weight):
    weight.data = torch.zeros_like(weight)


@pytest.mark.parametrize("change", [zero, zero_data, swap_data])
def test_nothing_is_saved_of_parameters_that_something_else_has_changed(ranks, change):
    change(ranks[1].model[0].weight)
    ranks[1].survivor.save()
    assert adopted(ranks) is None


def save_in_processes(ranks):
    saving = [multiprocessing.get_context("fork").Process(target=rank.survivor.save) for rank in ranks]
    for process in saving:
        process.start()
    for process in saving:
        process.join()
    assert [process.exitcode for process in saving] == [0, 0]


def test_nothing_is_saved_where_no_optimizer_of_torch_changes_the_parameters(tmp_path, said, monkeypatch):
    monkeypatch.setattr(survivors, "Partners", Partners)
    monkeypatch.setattr(Partners, "ranks", {})
    alone = Rank(tmp_path, 0, said)
    for step in (1, 2):
        alone.forward()
        alone.loss.backward()
        for parameter in alone.model.parameters():
            parameter.data -= parameter.grad  # which autograd does not count
        alone.survivor.keep(step)
    next(alone.model.parameters()).data.zero_()  # in the middle of the next step
    alone.survivor.save()
    assert not [*alone.store.folder.glob(".survived-*/step-*")]


def test_of_several_survivors_one_saves(ranks, capfd):
    save_in_processes(ranks)
    assert capfd.readouterr().out.count("saved step 4") == 1
    assert adopted(ranks).step == 4


def test_survivors_whose_parameters_differ_save_nothing_that_is_used(ranks, said):
    ranks[1].model[0].weight.data[3, 3] += 1  # neither a version nor the first bytes show it
    save_in_processes(ranks)
    assert adopted(ranks) is None
    assert said[-1] == "step 4, saved by a survivor, cannot be used: the ranks' parameters differ"


@pytest.mark.parametrize("forged", [b"", b"torn", seal("a guess", OwnState("17.0.0", 4, 0, False, b"0"))])  # noqa: FBT003
def test_a_state_that_was_torn_or_sealed_by_another_is_not_written(ranks, said, forged):
    ranks[1].survivor._partners.messages[-1] = forged
    ranks[1].survivor.save()
    assert adopted(ranks) is None
    assert said[-1] == "step 4, saved by a survivor, cannot be used: the state of ranks [0] is lost"


def test_a_survivor_that_dies_while_it_writes_or_has_no_space_leaves_the_checkpoint_before(ranks, monkeypatch, capsys):
    ranks[0].store.write(2, {"model.pt": {}}, {})
    with monkeypatch.context() as patched:
        patched.setattr(
            survivors, "save_parts", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device"))
        )
        ranks[1].survivor.save()
    assert capsys.readouterr().out == "rank 1 could not save step 4: No space left on device\n"
    assert adopted(ranks).step == 2


def test_an_older_step_than_the_newest_checkpoint_and_another_attempts_states_do_not_count(ranks, said):
    ranks[0].store.write(9, {"model.pt": {}}, {})
    ranks[1].survivor.save()
    assert adopted(ranks).step == 9
    ranks[1].survivor.begin(10)
    ranks[1].survivor.save()
    (note,) = ranks[0].store.folder.glob(".survived-*/*/survived.json")
    note.write_text(json.dumps({**json.loads(note.read_text()), "attempt": "17.1.0"}))
    assert adopted(ranks).step == 9
    assert said[-1] == "step 10, saved by a survivor, cannot be used: the state of ranks [0, 1] is lost"


def test_a_normal_number_that_numpy_has_left_over_is_in_the_state():
    training = TrainingState(model=nn.Linear(1, 1), shared={}, own={}, device=CPU)
    np.random.seed(1)  # noqa: NPY002 - the global generator
    np.random.standard_normal()  # noqa: NPY002
    left = training.collect_own()["random"]["numpy"]
    np.random.standard_normal()  # noqa: NPY002
    used = training.collect_own()["random"]["numpy"]
    assert (left[3], used[3]) == (1, 0) and torch.equal(left[1], used[1])


class StandInGpu(Gpu):
    """Stands in for a GPU: its memory is the host's, and how much of the queue is done the test says."""

    def __init__(self, _, parameters):
        self._first = [one.detach().as_strided((1,), (1,)).view(torch.uint8) for one in parameters]
        self.queued, self.done = 0, float("inf")

    def mark(self):
        self.queued += 1
        return lambda number=self.queued: number <= self.done

    @contextlib.contextmanager
    def reading(self):
        yield


@pytest.fixture
def stand_ins(monkeypatch):
    """GPUs whose ranks are asked to save; what else a test changes, it changes here."""
    monkeypatch.setenv("SLURMDDP_GPU_SURVIVORS", "1")
    monkeypatch.setattr(survivors, "Partners", Partners)
    monkeypatch.setattr(survivors, "Gpu", StandInGpu)
    monkeypatch.setattr(Partners, "ranks", {})
    return monkeypatch


@pytest.fixture
def on_gpu(tmp_path, said, stand_ins):
    """Two ranks on stand-ins of GPUs after four steps."""
    (tmp_path / "checkpoints").mkdir()
    stand_ins.setattr(survivors, "REACH_LIMIT_S", 0)
    stand_ins.setattr(survivors, "write_event", lambda *_: None)
    made = [Rank(tmp_path / "checkpoints", number, said, device=CUDA) for number in range(2)]
    for step in range(1, 5):
        for rank in made:
            rank.step(step)
    return made


def gpu_of(rank):
    return rank.survivor._gpu


def stop_at_end(gpu):
    """The GPU has done all that was queued until now, and does no more."""
    gpu.done = gpu.queued


def queue_step(rank, number):
    """Take a step of which the GPU does nothing, only what the host itself has of the optimizer's state is changed."""
    stop_at_end(gpu_of(rank))
    on_device = [*rank.model.parameters()]
    on_device += [state[key] for state in rank.optimizer.state.values() for key in ("exp_avg", "exp_avg_sq")]
    held = [tensor.detach().clone() for tensor in on_device]
    rank.step(number)
    for tensor, content in zip(on_device, held, strict=True):
        tensor.data.copy_(content)


def test_on_a_gpu_a_step_whose_end_is_reached_is_saved_where_two_ranks_agree(on_gpu):
    wanted = {name: value.clone() for name, value in on_gpu[1].model.state_dict().items()}
    for rank in on_gpu:
        stop_at_end(gpu_of(rank))
        rank.forward()
    for rank in on_gpu:
        rank.survivor.save()
    saved = adopted(on_gpu)
    assert saved.step == 4
    model = on_gpu[0].store.load(saved, "model.pt")
    assert all(torch.equal(model[name], wanted[name]) for name in ("0.weight", "0.bias", "1.weight"))


def test_on_a_gpu_a_step_whose_end_is_not_reached_is_not_saved(on_gpu):
    for rank in on_gpu:
        gpu_of(rank).done = gpu_of(rank).queued - 1  # the optimizer of step 4 has begun
        rank.survivor.save()
    assert adopted(on_gpu) is None


def test_it_is_waited_a_little_for_the_end(on_gpu, monkeypatch):
    monkeypatch.setattr(survivors, "REACH_LIMIT_S", 10)
    for rank in on_gpu:
        gpu, answers = gpu_of(rank), iter([False, False])
        rank.survivor._ends[-1].is_reached = lambda answers=answers: next(answers, True)
        stop_at_end(gpu)
        rank.survivor.save()
    assert adopted(on_gpu).step == 4


def test_on_a_gpu_what_one_rank_alone_has_held_is_refused(on_gpu, said):
    on_gpu[1].survivor.save()
    assert adopted(on_gpu) is None
    assert said[-1].endswith("cannot be used: on a GPU, two ranks must hold the same parameters, and only one did")


def test_on_a_gpu_ranks_that_differ_are_refused(on_gpu, said):
    on_gpu[1].model[0].weight.data[3, 3] += 1
    for rank in on_gpu:
        rank.survivor.save()
    assert adopted(on_gpu) is None
    assert said[-1] == "step 4, saved by a survivor, cannot be used: the ranks' parameters differ"


def test_a_step_that_is_only_queued_behind_a_lost_ranks_gradients_has_changed_nothing(on_gpu):
    """Though the host has seen its end: its own tensors, as AdamW's numbers of steps, are put back."""
    wanted = {name: value.clone() for name, value in on_gpu[1].model.named_parameters()}
    moments = [state["exp_avg"].clone() for state in on_gpu[1].optimizer.state.values()]
    schedule = on_gpu[1].schedule.state_dict()
    for rank in on_gpu:
        queue_step(rank, 5)
        rank.schedule.step()
    for rank in on_gpu:
        assert {float(state["step"]) for state in rank.optimizer.state.values()} == {5}
        rank.survivor.save()
    saved = adopted(on_gpu)
    assert saved.step == 4
    model, parts = (on_gpu[0].store.load(saved, name) for name in ("model.pt", "state.pt"))
    states = parts["parts"]["optimizer"]["state"]
    assert all(torch.equal(model[name], wanted[name]) for name in wanted)
    assert [float(state["step"]) for state in states.values()] == [4] * 4
    assert all(torch.equal(state["exp_avg"], moment) for state, moment in zip(states.values(), moments, strict=True))
    assert parts["parts"]["schedule"] == schedule
    assert {float(state["step"]) for state in on_gpu[0].optimizer.state.values()} == {5}  # the training's own


@pytest.mark.parametrize("change", [zero, swap_data])
def test_what_was_changed_before_an_optimizer_was_queued_is_not_saved(on_gpu, change):
    for rank in on_gpu:
        change(rank.model[0].weight)
        queue_step(rank, 5)
        rank.survivor.save()
    assert adopted(on_gpu) is None


def test_what_is_written_through_data_on_a_gpu_is_seen_in_its_memory(on_gpu):
    """There `traces_of` has the place of a tensor in place of its first bytes."""
    for rank in on_gpu:
        queue_step(rank, 5)  # from here on only the memory itself tells
        rank.model[0].weight.data.zero_()
        rank.survivor.save()
    assert adopted(on_gpu) is None


def test_an_optimizer_that_the_gpu_begins_while_it_is_read_makes_it_void(on_gpu, monkeypatch):
    for rank in on_gpu:
        queue_step(rank, 5)
    plain = survivors.save_parts

    def save_late(files, folder):
        plain(files, folder)
        for rank in on_gpu:
            gpu_of(rank).done += 1

    monkeypatch.setattr(survivors, "save_parts", save_late)
    for rank in on_gpu:
        rank.survivor.save()
    assert adopted(on_gpu) is None


@pytest.mark.usefixtures("stand_ins")
def test_a_step_reads_nothing_of_a_gpus_memory(tmp_path, said):
    """To read it, the host would wait. Tensors of the device `meta` have no content: reading one raises an error."""
    with torch.device("meta"):
        alone = Rank(tmp_path, 0, said, norm=nn.LayerNorm, device=CUDA)
        for step in (1, 2, 3):
            alone.step(step)
        assert [end.step for end in alone.survivor._ends] == [2, 3]
        with pytest.raises((NotImplementedError, RuntimeError)):
            alone.survivor._ends[-1].is_held()


@pytest.mark.parametrize(("norm", "asked"), [(nn.BatchNorm1d, "1"), (nn.LayerNorm, "")])
def test_nothing_is_kept_on_a_gpu_without_being_asked_or_where_each_step_would_wait_for_it(
    tmp_path, said, stand_ins, norm, asked
):
    """As for the running means of BatchNorm."""
    stand_ins.setenv("SLURMDDP_GPU_SURVIVORS", asked)
    with torch.device("meta"):
        alone = Rank(tmp_path, 0, said, norm=norm, device=CUDA)
    assert alone.survivor._partners is None
    alone.survivor.keep(1)
    alone.survivor.save()
    assert not [*alone.store.folder.glob(".survived-*")]

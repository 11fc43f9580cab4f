"""A training whose state is divided among the ranks comes back as any other: whole, the same bits, on other ranks."""

import json
import os
import signal
from pathlib import Path

import pytest
import torch
from polling import until
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

PROGRAM = str(Path(__file__).parent.parent / "programs" / "fsdp.py")
pytestmark = pytest.mark.preloaded
TOTAL, STEP_S, EVERY = 20, 0.05, 5
KINDS = ["fsdp", "zero"]


def words(kind: str, total: int = TOTAL, step_s: float = STEP_S, every: int = EVERY) -> tuple[str, ...]:
    return (PROGRAM, kind, str(total), str(step_s), str(every))


def steps(run, rank: int = 0) -> list[str]:
    path = run.path / f"steps.{rank}"
    return path.read_text().splitlines() if path.exists() else []


def model_of(run) -> dict[str, torch.Tensor]:
    return torch.load(run.model, weights_only=True)


def differing(first, second) -> list[str]:
    return [name for name, value in first.items() if not torch.equal(value, second[name])]


@pytest.mark.parametrize(("kind", "count"), [("fsdp", 2), ("zero", 2)])
def test_stopped_and_killed_it_ends_with_the_same_bits(start, kind, count):
    """A notice repeats no step, kill -9 of any rank at most those since the last checkpoint."""
    calm = start("fork", count, *words(kind, step_s=0)).wait(300)
    assert calm.statuses == [0], calm.log(0)
    run, before = None, 0
    for number, (disturb, wanted) in enumerate([("notice", 75), ("kill.1", 137), (None, 0)]):
        going = start("fork", count, *words(kind), run=run, attempt=f"{number}.0")
        run = going.run
        until(lambda run=run, before=before: len(steps(run)) >= min(before + 3, TOTAL))
        if disturb == "notice":
            going.processes[0].send_signal(signal.SIGTERM)
        elif disturb:
            (run.path / disturb).touch()
        ended = going.wait(300)
        assert ended.statuses == [wanted], ended.stdout + ended.log(0)
        before = len(steps(run))
    wanted, got = model_of(calm.run), model_of(run)
    assert list(wanted) == list(got) and differing(wanted, got) == []
    assert TOTAL <= before <= TOTAL + EVERY + 1
    for rank in range(count):
        assert set(steps(run, rank)) == set(steps(calm.run, rank))


@pytest.mark.parametrize("kinds", [("hsdp", "fsdp"), ("zero", "zero")])
def test_it_goes_on_with_other_numbers_of_ranks(start, kinds):
    """Four, then two, then one, from what was a mesh of two by two: it ends as one rank alone does."""
    calm = start("fork", 1, *words(kinds[1], step_s=0), EVEN="1").wait(300)
    run, before = None, 0
    for number, count in enumerate((4, 2, 1)):
        kind = kinds[min(number, 1)]
        going = start("fork", count, *words(kind, every=1000), run=run, attempt=f"{number}.0", EVEN="1")
        run = going.run
        if count > 1:
            until(lambda run=run, before=before: len(steps(run)) >= before + 3)
            going.processes[0].send_signal(signal.SIGUSR2)
        ended = going.wait(300)
        assert ended.statuses == [75 if count > 1 else 0], ended.stdout + ended.log(0)
        before = len(steps(run))
    assert before == TOTAL
    assert [event["from_world_size"] for event in ended.events("resume")] == [4, 2]
    for name, wanted in model_of(calm.run).items():
        torch.testing.assert_close(model_of(run)[name], wanted, rtol=1e-4, atol=1e-6)


LIMITED = """
import os, resource, runpy, sys
sys.argv = sys.argv[1:]
if os.environ["RANK"] == "1":
    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture(scope="module")
def limited(tmp_path_factory):
    """Return a program that runs another, in which the disk of rank 1 takes no file of 4000 bytes."""
    path = tmp_path_factory.mktemp("limited") / "limited.py"
    path.write_text(LIMITED)
    return str(path)


def test_a_checkpoint_is_whole_or_not_there(start, limited, tmp_path):
    """Torch's own tools read it; a broken file of one rank sets it aside; a full disk of one rank costs a line."""
    first = start("srun", 2, *words("fsdp", 10, 0)).wait()
    assert first.statuses == [0, 0], first.log(0)
    newest = first.run.checkpoints / "step-000000010"
    ranks = ["rank-00000.distcp", "rank-00001.distcp"]
    files = json.loads((newest / "manifest.json").read_text())["files"]
    assert sorted(files) == [".metadata", "index.pt", *ranks, "ranks.pt", "state.pt"]
    dcp_to_torch_save(newest, tmp_path / "whole.pt")
    whole = torch.load(tmp_path / "whole.pt", weights_only=True)
    assert differing(model_of(first.run), whole["model"]) == []
    assert set(whole["optimizer"]["state"][0]) == {"step", "exp_avg", "exp_avg_sq"}

    os.truncate(newest / ranks[1], files[ranks[1]]["size"] - 1)
    ended = start("srun", 2, limited, *words("fsdp", 14, 0), run=first.run, attempt="1.0").wait()
    assert ended.statuses == [0, 0], ended.log(0)
    log = ended.log(0)
    assert "checkpoint step-000000010 is broken: rank-00001.distcp has" in log
    assert "resumed at step 5 from step-000000005" in log
    assert "WARNING: a checkpoint could not be saved: File too large (rank 1 on n1)" in log
    assert len(ended.events("checkpoint-failed")) == 2, "one at step 10, one at the end"
    assert len(steps(ended.run)) == 10 + 14 - 5
    left = sorted(path.name for path in ended.run.checkpoints.iterdir())
    assert left == ["broken-step-000000010", "identity", "step-000000005"]


def test_who_is_not_the_owner_any_more_makes_no_checkpoint(start):
    going = start("srun", 2, *words("zero", 40, 0.1, 5), SLURMDDP_OWNER="here 17 0.0")
    going.run.owner.write_text("here 17 0.0\n")
    until((going.run.checkpoints / "step-000000005").exists)
    going.run.owner.write_text("here 17 1.0\n")
    ended = going.wait()
    assert ended.record(0).startswith("78 rank 0 on n1: ")
    assert [path.name for path in ended.run.checkpoints.glob("step-*")] == ["step-000000005"]
    assert not ended.run.model.exists()

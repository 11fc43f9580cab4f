"""`slurmddp scale` with given measurements, and with jobs on a real Slurm."""

import json

import pytest

from slurmddp.cli import run_command_line
from slurmddp.scaling.measurements import Point

MEASURED = {1: 564.0, 2: 332.0, 3: 249.0, 4: 214.0}


@pytest.fixture
def cli(tmp_path, monkeypatch, capsys):
    """Return a function that runs the command in an empty folder, and returns what it printed."""
    monkeypatch.chdir(tmp_path)

    def run(*words, status=0):
        ended = run_command_line(["scale", *words])
        printed = capsys.readouterr()
        assert ended == status, printed.out + printed.err
        return printed

    return run


@pytest.fixture
def measure(cli, monkeypatch):
    """Return a function that runs the command where the seconds of each size are known, with --strong."""

    def run(*words, seconds=MEASURED):
        points = [Point(gpus=gpus, nodes=1, repeats_s=((time_s,),), steps=1) for gpus, time_s in seconds.items()]
        monkeypatch.setattr("slurmddp.cli.scale._measure", lambda *_, **__: (points, True))
        return cli("--gpus", "1", "--strong", *words)

    return run


def test_measured_times_give_a_table_and_advice(measure):
    lines = measure().out.splitlines()
    assert all(len(line) <= 120 for line in lines) and all(len(line) <= 80 for line in lines[:5])
    rows = [line.split() for line in lines[1:5]]
    assert [(row[0], row[4], row[5]) for row in rows] == [
        ("1", "1.00", "100%"),
        ("2", "1.70", "85%"),
        ("3", "2.27", "76%"),
        ("4", "2.64", "66%"),
    ]
    assert lines[5].startswith("Use 2 GPUs: ") and "0.184 GPU-hours, 0.157 on 1" in lines[5]


def test_the_minimum_efficiency_decides_the_recommended_size(measure):
    assert "Use 4 GPUs" in measure("--efficiency", "0.6").out
    assert "Use 1 GPU:" in measure("--efficiency", "0.9").out


def test_an_efficiency_above_100_percent_and_a_smallest_size_above_one_are_explained(measure):
    said = measure(seconds={2: 46.0, 4: 21.7, 8: 10.0})
    assert "More than 100%: something slows down the smallest size" in said.out
    assert "Speed-up is relative to 2 GPUs" in said.out and said.err == ""


def test_a_picture_is_two_files_and_json_is_alone_on_stdout(measure, tmp_path):
    done = measure("--picture", "o.png", "--json")
    found = json.loads(done.out)
    assert found["advice"] == {"efficiency": 0.8, "gpus": 2} and found["scaling"] == "strong"
    assert [round(one["speed_up"], 2) for one in found["points"]] == [1.0, 1.7, 2.27, 2.64]
    assert (tmp_path / "o.png").read_bytes()[:4] == b"\x89PNG" and (tmp_path / "o.svg").is_file()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "give the sizes to measure, as in --gpus 1,2,4,8"),
        (["--gpus", "1", "--efficiency", "nan"], "--efficiency nan is not a share"),
        (["--gpus", "1,2", "--efficiency", "80"], "--efficiency 80 is not a share, above 0 to 1; for 80 % give 0.8"),
        (["--gpus", "1", "--picture", "new/o"], "--picture: there is no folder 'new'; make it first"),
        (["--gpus", "1", "--picture", "./"], "--picture: './' is a folder; give a file, as in FILE"),
        (
            ["--gpus", "1", "--gpus-per-node", "1", "--steps", "20"],
            "--steps 20: the first 20 are left out (--warm-up); give more than 20, or a smaller --warm-up",
        ),
        (["--gpus", "1", "-N", "2"], "'-N' is an option of `slurmddp submit`"),
    ],
    ids=range(7),
)
def test_a_wrong_request_ends_in_one_line(cli, words, said):
    done = cli(*words, status=2)
    assert done.out == "" and said in done.err and done.err.count("\n") == 1


def test_sizes_are_measured_by_jobs_and_a_second_call_collects_them(cli, slurm_env, tmp_path, monkeypatch):
    """With --strong the speed-up is T1/Tn; no job is submitted twice."""
    words = ["--gpus", "1,2", "--ntasks-per-node", "2", "--launcher", "fork", "--strong", "--task", "linear"]
    words += ["--steps", "40", "--warm-up", "10", "--no-preflight", "--name", "lin", "--json"]
    for name, value in (*slurm_env.items(), ("OMP_NUM_THREADS", "1")):
        monkeypatch.setenv(name, value)
    first = cli(*words).out
    one, two = json.loads(first)["points"]
    assert (one["gpus"], one["nodes"], two["gpus"], two["nodes"]) == (1, 1, 2, 1)
    assert one["speed_up"] == 1 and two["speed_up"] == pytest.approx(one["seconds"] / two["seconds"])
    assert two["efficiency"] == pytest.approx(two["speed_up"] / 2)
    assert one["samples_per_s"] * one["seconds"] == pytest.approx(two["samples_per_s"] * two["seconds"])
    assert 0 <= two["communication"] <= 1 and two["training_s"] == pytest.approx(1280 * two["seconds"])
    submitted = [path.read_text() for path in sorted(tmp_path.glob("jobs/*/submissions.jsonl"))]
    assert len(submitted) == 2 and "afterany" in (tmp_path / "jobs/lin-scale-2/job.sbatch").read_text()
    assert json.loads(cli(*words).out) == json.loads(first)
    assert [path.read_text() for path in sorted(tmp_path.glob("jobs/*/submissions.jsonl"))] == submitted
    changed = cli(*words, "--batch-size", "16", status=2)
    assert "batch-size 32 became 16; choose another --name, or --reset to measure again" in changed.err

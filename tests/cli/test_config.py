"""`slurmddp config` and `slurmddp init`: their output and the files they write."""

import ast
import json
import re
import resource
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from slurmddp.cli import run_command_line
from slurmddp.cli.init import EXAMPLES
from slurmddp.cluster import inspect
from slurmddp.errors import ClusterError


@pytest.fixture
def typed(tmp_path, monkeypatch, capsys):
    """Return a function that runs a command in an empty project without a cluster."""
    (tmp_path / "work" / ".git").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)

    def run(*words: str) -> tuple[int, str, str]:
        status = run_command_line(list(words))
        return status, *capsys.readouterr()

    return run


@pytest.fixture
def configured(tmp_path, typed):
    """Write a project file, a user file and a job file."""
    user = tmp_path / ".config" / "slurmddp" / "config.toml"
    user.parent.mkdir(parents=True)
    user.write_text('account = "abc"\n')
    Path("slurmddp.toml").write_text('module = ["cuda/12.4", "gcc"]\n[profile.big]\nnodes = 8\n')
    Path("exp.toml").write_text('partition = "gpu"\n[env]\nHF_TOKEN = "geheim"\nA = 1\n[worker]\nepochs = 3\n')
    return typed


def test_config_shows_each_value_once_with_its_origin(configured):
    status, out, err = configured("config", "exp.toml", "--profile", "big", "-t", "30", "--lr", "0.5")
    assert (status, err) == (0, "")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    for line in (
        "read job file exp.toml",
        "read project file slurmddp.toml",
        "read user file ~/.config/slurmddp/config.toml",
        "nodes 8 project file slurmddp.toml, table profile.big",
        "account abc user file ~/.config/slurmddp/config.toml",
        "time 30 --time",
        "job-name exp the job file's name",
        "env HF_TOKEN=***",
        "A=1",
        "gcc",
        "worker.epochs 3 job file exp.toml, table worker",
        "worker.lr 0.5 --lr",
        "launcher srun built-in",
        "signal-lead 120 built-in",
    ):
        assert any(line in " ".join(lines[at : at + 2]) for at in range(len(lines))), (line, out)
    assert "geheim" not in out
    assert out.index("\nworker.lr ") < out.index(" built-in\n") < out.index("\nnot set: ")
    assert "qos" in out[out.index("not set: ") :]


def test_config_as_json_has_every_value(configured, tmp_path):
    status, out, _ = configured("config", "exp.toml", "--json")
    report = json.loads(out)
    folder = tmp_path / "work"
    assert (status, report["cluster"], report["computed"]) == (0, None, [])
    assert "sinfo" in report["silence"] or "scontrol" in report["silence"]
    assert [file["kind"] for file in report["files"]] == ["job file", "project file", "user file"]
    assert report["values"]["env"]["value"] == ["HF_TOKEN=***", "A=1"]
    assert report["values"]["module"] == {
        "value": ["cuda/12.4", "gcc"],
        "origin": f"project file {folder / 'slurmddp.toml'}, key module",
    }
    assert report["worker"]["epochs"] == {"value": 3, "origin": "job file exp.toml, table worker, key epochs"}
    assert report["worker"]["lr"]["origin"] == "built-in"
    words = ("train.py", "--api-key", "geheim")
    command = json.loads(configured("config", "--json", *words)[1])["command"]
    assert command == {"value": ["train.py", "--api-key", "***"], "origin": "the command line"}


def test_an_ignored_file_is_reported_on_stderr_and_in_the_list(configured):
    Path("slurmddp.toml").chmod(0o666)
    status, out, err = configured("config")
    assert status == 0
    assert err.count("\n") == 1 and "slurmddp.toml' is ignored: every user may write to it" in err
    assert "ignored  slurmddp.toml: every user may write to it" in out
    assert "cuda" not in out


def test_a_recorded_run_is_shown_without_todays_configuration(configured):
    Path("spec.toml").write_text('job-name = "x"\n[recorded]\nversion = "0"\n')
    _, out, _ = configured("config", "spec.toml")
    assert "ignored  slurmddp.toml: the job file is the record of a run" in out


def test_other_commands_read_the_project_file_too(configured):
    assert "module load cuda/12.4" in configured("render", "exp.toml", "--profile", "big")[1]
    assert configured("render", "--profile", "bg")[::2] == (
        2,
        "Error: --profile: unknown profile 'bg'; did you mean big?\n",
    )
    Path("slurmddp.toml").write_text('runs-dir = "runs"\n')
    assert "nor a submitted run in runs;" in configured("requeue", "nobody")[2]


def test_init_writes_a_job_file_for_render(typed):
    Path("train.py").write_text("")
    status, out, err = typed("init")
    assert (status, out) == (0, "job.toml\n")
    assert "the job file has no values of a cluster: " in err
    assert "slurmddp render job.toml, slurmddp submit job.toml\n" in err
    status, script, _ = typed("render", "job.toml")
    assert status == 0
    assert "#SBATCH --job-name=train\n" in script and "train.py" in script


def test_init_takes_a_name_and_a_folder(typed):
    Path("sub").mkdir()
    Path("sub/main.py").touch()
    assert typed("init", "sub/exp1")[:2] == (0, "sub/exp1.toml\n")
    table = tomllib.loads(Path("sub/exp1.toml").read_text())
    assert ("name" in table, table["command"]) == (False, ["main.py"]), "its default is the same"
    assert "#SBATCH --job-name=exp1\n" in typed("render", "sub/exp1.toml")[1]
    assert typed("init", "sub")[:2] == (0, "sub/job.toml\n")


def test_init_takes_the_training_script(typed):
    Path("sub").mkdir()
    for name in ("train.py", "sub/fit.py", "sub/eval.py"):
        Path(name).write_text("")
    assert typed("init", "sub/fit.py")[:2] == (0, "sub/fit.toml\n")
    table = tomllib.loads(Path("sub/fit.toml").read_text())
    assert ("name" in table, table["command"]) == (False, ["fit.py"])
    assert "sub/fit.py" in typed("render", "sub/fit.toml")[1]


THERE = "exists already and is not changed"
NAME_ANOTHER = (
    "give one that exists, or the job file to write: slurmddp init NAME.toml, or write a script, too: "
    "slurmddp init --example steps"
)


@pytest.mark.parametrize(
    ("words", "there", "said"),
    [
        ("", "job.toml", f"'job.toml' {THERE}; edit it, remove it first, or give another name"),
        ("fit.py", "fit.py fit.toml", f"'fit.toml' {THERE}; edit it, remove it first, or give"),
        ("--example steps", "steps.py", f"'steps.py' {THERE}; edit it, remove it first, or give another name"),
        ("--example steps", "steps.toml", f"'steps.toml' {THERE}; edit it, remove it first, or give another name"),
        ("trian.py", "train.py", f"there is no script 'trian.py'; {NAME_ANOTHER}"),
        (
            "r.sh",
            "r.sh",
            "r.sh is no training script in Python; a batch script needs no job file: slurmddp submit r.sh",
        ),
        ("./-x.py", "-x.py", "'-x.py' begins with -, as an option does; give the script another name"),
        ("no/exp", "", "there is no folder 'no'; make it first"),
        ("a\x07b", "", r"'a\x07b.toml' contains a character that cannot be printed; give another name"),
        ("--example lightning", "", "--example: unknown example 'lightning'; did you mean lightning_fit?"),
        ("--example x", "", f"--example: unknown example 'x'; allowed are {', '.join(EXAMPLES)}"),
    ],
)
def test_init_refuses_what_it_cannot_write_and_overwrites_nothing(typed, words, there, said):
    for name in there.split():
        Path(name).write_text("theirs")
    status, out, err = typed("init", *words.split(" ") if words else ())
    assert (status, out) == (2, "") and err.startswith(f"Error: {said}") and err.count("\n") == 1
    assert {path.name: path.read_text() for path in Path().glob("*.*") if path.is_file()} == dict.fromkeys(
        there.split(), "theirs"
    )


def test_init_does_not_write_through_a_link_to_nothing(typed):
    Path("link.toml").symlink_to("nowhere")
    assert typed("init", "link")[0] == 2 and not Path("nowhere").exists()


@pytest.mark.parametrize(
    ("words", "stem"),
    [
        ((), "steps"),
        (("sub",), "sub/steps"),
        (("sub/fit",), "sub/fit"),
        (("fit.v2",), "fit.v2"),
        (("train.py",), "train"),
        (("sub/exp.toml",), "sub/exp"),
    ],
)
def test_init_writes_an_example_and_the_job_file_that_names_it(typed, words, stem):
    Path("sub").mkdir()
    status, out, err = typed("init", "--example", "steps", *words)
    assert (status, out) == (0, f"{stem}.toml\n")
    assert f"the script is {stem}.py; edit both files if needed; then type: slurmddp render {stem}.toml, " in err
    assert Path(f"{stem}.py").read_text() == EXAMPLES["steps"].read_text().replace("steps.py", f"{Path(stem).name}.py")
    table = tomllib.loads(Path(f"{stem}.toml").read_text())
    assert ("name" in table, table["command"]) == (False, [f"{Path(stem).name}.py"])
    assert typed("render", f"{stem}.toml")[0] == 0


@pytest.mark.parametrize(("words", "name"), [((), "job.toml"), (("--example", "steps"), "steps.toml")])
def test_init_leaves_a_file_alone_that_was_created_while_it_inspected_the_cluster(typed, monkeypatch, words, name):
    def create_file(*_, **__):
        Path(name).write_text("theirs")
        raise ClusterError("no cluster")

    monkeypatch.setattr(inspect, "query_cluster", create_file)
    status, out, err = typed("init", *words)
    assert (status, out) == (2, "") and f"Error: '{name}' exists already and is not changed; " in err
    assert [(path.name, path.read_text()) for path in Path().glob("*.*") if path.is_file()] == [(name, "theirs")]


def test_init_leaves_no_file_on_a_full_disk(typed):
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
    try:
        status, out, err = typed("init")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        signal.signal(signal.SIGXFSZ, before)
    assert (status, out) == (1, "")
    assert err.splitlines()[-1] == "Error: 'job.toml' cannot be written: File too large"
    assert not Path("job.toml").exists()


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("-p", "nosuch"), 3, "--partition: 'nosuch' does not exist; "),
        (("-p", "short", "-t", "99:00:00"), 3, "--time 99:00:00: partition short allows at most 00:10:00"),
        (("-t", "soon"), 2, "--time: 'soon' is not a Slurm time"),
        (("-N", "0"), 2, "--nodes: '0' is not a whole number"),
    ],
    ids=range(4),
)
def test_init_refuses_what_the_job_could_not_ask_for(slurm_env, typed, monkeypatch, words, status, said):
    for name, value in slurm_env.items():
        monkeypatch.setenv(name, value)
    assert typed("init", *words)[:2] == (status, "")
    assert said in typed("init", *words)[2] and not Path("job.toml").exists()


def test_init_writes_the_options_of_the_job_without_a_cluster_too(typed):
    assert typed("init", "-p", "low", "exp")[:2] == (0, "exp.toml\n")
    assert tomllib.loads(Path("exp.toml").read_text())["partition"] == "low"


def test_init_for_the_cluster_is_accepted_by_it(slurm_env, tmp_path):
    def call(*words):
        return subprocess.run(
            [sys.executable, "-m", "slurmddp", *words],
            cwd=tmp_path,
            env=slurm_env,
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    assert call("init", "exp") == "exp.toml\n"
    call("init", "low", "-p", "low", "-A", "mine", "-N", "2", "-t", "30", "--ntasks-per-node", "4")
    table = tomllib.loads((tmp_path / "low.toml").read_text())
    assert (table["partition"], table["account"], table["nodes"], table["time"]) == ("low", "mine", 2, "30")
    assert table["ntasks-per-node"] == 4
    assert table["gpus-per-node"] == 8 and "\n# cpus-per-task" in (tmp_path / "low.toml").read_text()
    table = tomllib.loads((tmp_path / "exp.toml").read_text())
    assert (table["partition"], table["gpus-per-node"], table["time"]) == ("gpu", 8, "04:00:00")
    script = call("submit", "--dry-run", "exp.toml")
    assert "#SBATCH --gpus-per-node=8\n" in script
    report = json.loads(call("config", "exp.toml", "--json"))
    assert report["cluster"].startswith("sandbox-pytest-")
    assert "cpus-per-task" in report["computed"]
    assert report["values"]["cpus-per-task"]["value"] == 2
    assert "# cpus-per-task = 2 " in (tmp_path / "exp.toml").read_text()


@pytest.mark.parametrize("example", EXAMPLES.values(), ids=EXAMPLES)
def test_an_example_is_short_and_its_docstring_says_how_it_is_run_and_what_a_preemption_does(example):
    text = example.read_text()
    opening = ast.get_docstring(ast.parse(text))
    assert 40 <= text.count("\n") <= 90
    assert f"slurmddp submit --nodes 2 --gpus-per-node 8 {example.name} " in opening
    assert f"slurmddp run --ntasks-per-node 2 {example.name} " in opening
    assert "At a preemption " in opening


@pytest.mark.parametrize("command", ["config", "doctor", "render"])
def test_each_command_names_the_run_that_submit_would_take(command, typed):
    """The run `train` has trained with other arguments."""
    Path("train.py").write_text("")
    Path("jobs/train/logs/17/0.0").mkdir(parents=True)
    command_line = [str(Path.cwd() / "train.py"), "--lr", "0.1"]
    Path("jobs/train/spec.toml").write_text(f"command = {command_line}\n")
    _, out, err = typed(command, "train.py", "--lr", "0.2")
    assert "run train has another command: '--lr 0.1' became '--lr 0.2'; this is run train-2" in err
    if command == "config":
        assert re.search(r"^job-name +train-2 +COMMAND$", out, re.MULTILINE)
    assert command != "render" or "--job-name=train-2\n" in out


@pytest.mark.parametrize("command", ["config", "doctor"])
def test_a_program_that_is_missing_does_not_hide_the_other_findings(command, typed):
    Path("jobs/train/logs/17/0.0").mkdir(parents=True)
    Path("jobs/train/spec.toml").write_text('command = ["train.py", "--lr", "0.1"]\n')
    assert len(typed(command, "train.py", "--lr", "0.2")[1].splitlines()) > 5

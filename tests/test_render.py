"""The script is the same text for the same job, clean for shellcheck, and nothing of a user's can escape its place."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

import slurmddp
from slurmddp import config
from slurmddp.array import Array
from slurmddp.errors import UsageError
from slurmddp.render import render
from slurmddp.rundir import RunDir, read_records
from slurmddp.spec import JobSpec
from slurmddp.sweep.settings import parse, settings, tasks

GOLDEN = Path(__file__).parent / "golden"
RECIPES = sorted((Path(__file__).parent.parent / "jobs").glob("*.toml"))
LAUNCHERS = ["srun", "fork", "torchrun"]
IMAGES = {"apptainer": "/images/torch.sif", "pyxis": "nvcr.io#nvidia/pytorch:25.10-py3"}
PACKAGE = str(Path(slurmddp.__file__).parent)


def job(**values) -> JobSpec:
    return JobSpec(**{"job_name": "x", "python": "python3"} | values)


def recipe(path: Path, launcher: str) -> str:
    options = {"launcher": launcher, "python": "python3"}
    return render(config.resolve(options=options, words=(), job_file=path, environ={}).spec)


@pytest.mark.parametrize("launcher", LAUNCHERS)
@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipes_script_is_the_one_on_file(path, launcher):
    """After an intended change: python tests/test_render.py writes the files anew; read their difference."""
    assert recipe(path, launcher) == (GOLDEN / f"{path.stem}-{launcher}.sbatch").read_text()


def contained(runtime: str) -> str:
    spec = job(
        nodes=2,
        gpus_per_node="2",
        container=IMAGES[runtime],
        container_mount=("/datasets:/data:ro",),
        env=("TOKEN", "A=b c"),
        command=("train.py",),
    )
    return render(spec).replace(PACKAGE, "/site-packages/slurmddp")


def swept(launcher: str) -> str:
    spec = job(nodes=2, gpus_per_node="2", launcher=launcher, command=("train.py", "--lr={lr}", "{run}"))
    wanted = settings(parse(["lr=1e-3,1e-4", "run=a&b,c d"]), side_by_side=False)
    return render(spec, array=Array(tasks(spec, wanted), max_parallel=3))


def test_a_sweep_s_script_is_the_one_on_file_and_clean():
    file = GOLDEN / "sweep.sbatch"
    assert swept("srun") == file.read_text()
    check_shell(file)


def test_torchrun_gets_the_words_of_a_setting_as_it_wants_them():
    """It takes `$` for its own."""
    spec = job(launcher="torchrun", command=("train.py", "{run}"))
    text = render(spec, array=Array(tasks(spec, [{"run": "$x"}])))
    assert "DDPRUN_PROGRAM=(train.py '$$x')" in text and '-m slurmddp.worker "${DDPRUN_PROGRAM[@]}"\n' in text


@pytest.mark.parametrize("runtime", IMAGES)
def test_a_containers_script_is_the_one_on_file_and_clean(runtime):
    file = GOLDEN / f"{runtime}.sbatch"
    assert contained(runtime) == file.read_text()
    check_shell(file)


def check_shell(file: Path) -> None:
    subprocess.run(["bash", "-n", file], check=True)
    shellcheck = Path(sys.executable).parent / "shellcheck"
    found = subprocess.run([shellcheck, "--severity=style", file], capture_output=True, text=True, check=False)
    assert found.stdout == ""


@pytest.mark.parametrize("launcher", LAUNCHERS)
@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipes_script_is_clean_for_shellcheck_and_bash(path, launcher):
    check_shell(GOLDEN / f"{path.stem}-{launcher}.sbatch")


@pytest.mark.parametrize("launcher", LAUNCHERS)
@pytest.mark.parametrize(
    "values",
    [
        {},
        {"gpus_per_node": "8", "nodes": 2, "cpus_per_task": 4},
        {"module": ("a b", "c"), "conda": "e", "setup": ("true",), "env": ("A=1 'x'", "HOME")},
        {"command": ("train.py", "--x", "a b\n", "\udcff")},
        {"container": "a b.sif", "container_mount": ("/a b:/c:ro",), "env": ("HOME",)},
        {"container": "a b.sqsh", "env": ("HOME",)},
        {"reset": True, "max_requeues": 3, "requeue": False, "time": "10", "preflight": False},
    ],
)
def test_scripts_are_clean_for_shellcheck_and_bash(values, launcher, tmp_path):
    file = tmp_path / "job.sh"
    file.write_text(render(job(launcher=launcher, **values)))
    check_shell(file)


def test_a_script_is_rendered_the_same_twice():
    assert render(job(nodes=2, env=("A=b",))) == render(job(nodes=2, env=("A=b",)))


@pytest.mark.parametrize(
    "field", ["partition", "account", "constraint", "reservation", "nodelist", "exclude", "dependency", "qos"]
)
def test_a_header_value_stays_on_its_line(field):
    value = "a\"b\\c $(touch x) `y` #z 'q'"
    assert f'#SBATCH --{field}="a\\"b\\\\c $(touch x) `y` #z \'q\'"\n' in render(job(**{field: value}))


def test_the_value_of_a_variable_that_travels_by_name_is_not_written(monkeypatch):
    monkeypatch.setenv("TOKEN", "geheim")
    assert "geheim" not in render(job(env=("TOKEN",)))


def test_set_up_lines_come_in_order_and_unchanged(tmp_path):
    file = tmp_path / "setup.sh"
    file.write_text("export A='1'\nif true; then\n  export B=2\nfi\n")
    script = render(job(module=("m",), venv="v", setup_file=str(file), setup=("export C=3",)))
    assert (
        "module load m\nsource v/bin/activate\nexport A='1'\nif true; then\n  export B=2\nfi\nexport C=3\ntrap - DEBUG "
        in script
    )


@pytest.mark.parametrize("content", [b"a\r\nb", b"a\0b", b"\xff"])
def test_a_set_up_file_that_sbatch_would_refuse_is_refused(content, tmp_path):
    file = tmp_path / "setup.sh"
    file.write_bytes(content)
    with pytest.raises(UsageError):
        render(job(setup_file=str(file)))


def test_a_missing_template_or_set_up_file_is_named():
    with pytest.raises(UsageError, match="--template: 'none.j2' cannot be read: No such file"):
        render(job(template="none.j2"))
    with pytest.raises(UsageError, match="--setup-file: 'none.sh' cannot be read"):
        render(job(setup_file="none.sh"))


def own(tmp_path: Path, text: str) -> JobSpec:
    file = tmp_path / "own.j2"
    file.write_text(text)
    return job(template=str(file), partition='a"b')


def test_a_template_of_ones_own_extends_ours_by_blocks(tmp_path):
    text = '{% extends "base.sbatch.j2" %}{% block setup %}echo {{ job.partition | shell }}\n{% endblock %}'
    script = render(own(tmp_path, text))
    assert "\necho 'a\"b'\n" in script
    assert "srun --kill-on-bad-exit=1" in script


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("#!/bin/sh\necho {{ job.partition }}", "without a filter"),
        ("#!/bin/sh\necho {{ job.nothing }}", "no attribute 'nothing'"),
        ("#!/bin/sh\necho {{ nothing }}", "'nothing' is undefined"),
        ("#!/bin/sh\n{% if %}", "line 2"),
        ("#!/bin/sh\n{{ job.__class__.__mro__ | shell }}", "unsafe"),
        ("#!/bin/sh\n{{ cycler.__init__.__globals__ | shell }}", "unsafe"),
        ("echo", "begin with #!"),
        ('{% extends "/etc/passwd" %}', "etc/passwd"),
        ('{% include "../pyproject.toml" %}', "pyproject"),
    ],
)
def test_a_template_that_is_wrong_or_hostile_is_one_line(text, message, tmp_path):
    with pytest.raises(UsageError, match=message) as caught:
        render(own(tmp_path, text))
    assert "\n" not in str(caught.value)


NAMES = """
scontrol() { :; }
ddprun_choose_ports() { :; }
DDPRUN_LEFT= DDPRUN_STATUS=76
ddprun_begin 1
ddprun_newest >"$DDPRUN_DIR/newest"
ddprun_event restart '"status": 76'
ddprun_count_requeue x
echo "$DDPRUN_RANKS"
"""


def test_the_script_names_the_same_files_as_rundir(tmp_path):
    """Run the script's own parts, and look where they put things."""
    script = render(job(job_name="r", reset=True), reset_number=3)
    head = script[: script.index("# --- The ranks' environment.")]
    functions = script[script.index("# --- What happened") : script.index("# --- The ranks: ")]
    environ = {
        "SLURM_JOB_ID": "7",
        "SLURM_RESTART_COUNT": "2",
        "SLURM_JOB_NODELIST": "n1",
        "SLURM_CLUSTER_NAME": "c",
        "PATH": "/usr/bin:/bin",
    }
    run = RunDir(tmp_path / "jobs" / "r")
    (run.checkpoints / "step-000000007").mkdir(parents=True)
    run.model.touch()
    run.requeues("7").parent.mkdir(parents=True)
    run.requeues("7").touch()
    subprocess.run(["bash", "-s"], input=(head + functions + NAMES).encode(), cwd=tmp_path, env=environ, check=True)
    assert run.attempts("7") == ["2.1"]
    assert run.batch_log("7").read_text().splitlines()[-1] == str(run.attempt("7", "2.1"))
    assert run.owner.read_text() == "c 7 2.1\n"
    assert run.before_reset(3).is_dir()
    assert sorted(path.name for path in run.before_reset(3).iterdir()) == ["checkpoints", "model.pt"]
    assert run.next_reset == 4
    assert (run.path / "newest").read_text() == "none\n"
    assert [event["event"] for event in read_records(run.events)] == ["restart"]
    assert run.requeues("7").read_text().startswith("none ")


def test_a_folder_that_the_script_makes_is_private(tmp_path):
    script = render(job(job_name="r"))
    head = script[: script.index("# --- The ranks' environment.")]
    environ = {"SLURM_JOB_ID": "7", "PATH": "/usr/bin:/bin"}
    subprocess.run(["bash", "-s"], input=head.encode(), cwd=tmp_path, env=environ, check=True)
    run = RunDir(tmp_path / "jobs" / "r")
    assert run.path.stat().st_mode & 0o777 == 0o700
    assert (run.path / ".gitignore").read_text() == "*\n"


def test_a_job_that_starts_over_says_which_time_it_is():
    assert "before-reset-2\n" not in render(job(), reset_number=2)
    assert "/before-reset-2 path\n" in render(job(reset=True), reset_number=2)


def _ports(n: int = 0, **environ: str) -> tuple[int, int]:
    """Run the script's own choice of ports on this machine."""
    script = render(job(port_range="21000-21099"))
    begin, end = script.index("ddprun_in_use()"), script.index("# --- What happened")
    out = subprocess.run(
        ["bash", "-s"],
        input=(script[begin:end] + f'ddprun_choose_ports {n}; echo "$MASTER_PORT $DDPRUN_STORE_PORT"\n').encode(),
        env={"PATH": "/usr/bin:/bin", **environ},
        check=True,
        capture_output=True,
    )
    first, second = out.stdout.split()
    return int(first), int(second)


@pytest.mark.parametrize("job_id", ["8", "08", "0089", "1200089", "4294967294"])
def test_ports_are_in_the_range_for_any_job_id(job_id):
    first, second = _ports(SLURM_JOB_ID=job_id)
    assert first >= 21000 and second == first + 1 <= 21099


def test_ports_differ_by_job_and_by_attempt():
    jobs, counts = ("5", "6"), ("0", "1")
    chosen = {_ports(n, SLURM_JOB_ID=j, SLURM_RESTART_COUNT=r)[0] for j in jobs for r in counts for n in (0, 1)}
    assert len(chosen) == 8


@pytest.mark.parametrize("which", [0, 1])
def test_a_taken_port_is_passed_over(which):
    wanted = _ports(SLURM_JOB_ID="5")
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", wanted[which]))
        holder.listen()
        assert _ports(SLURM_JOB_ID="5")[0] == wanted[0] + 2


def test_what_to_type_names_each_node_and_nothing_of_a_users_escapes():
    words = ("train.py", "$$", "a'b")
    text = render(job(launcher="manual", nodes=2, nodelist="n[1-2]", command=words, ntasks_per_node=2, env=("A=x y",)))
    first, second = text.split("# --- On ")[1:]
    for part, host, node in ((first, "n1", 0), (second, "n2", 1)):
        assert part.startswith(f"{host}\n(\n  cd ")
        assert f"--nnodes=2 --node-rank={node} --nproc-per-node=2" in part
        assert "--master-addr=n1 --master-port=20000" in part
        assert "export A='x y'\n" in part
        assert """-m slurmddp.worker train.py '$$$$' 'a'"'"'b'\n""" in part
    assert subprocess.run(["bash", "-n"], input=text.encode(), check=True)


def test_nodes_without_names_are_placeholders_that_are_explained():
    text = render(job(launcher="manual", nodes=2))
    assert "# NODE0 and the like stand for the names of your nodes" in text
    assert "--master-addr=NODE0" in text and "# --- On NODE1\n" in text
    assert "localhost" in render(job(launcher="manual"))


def test_each_start_has_a_file_of_its_own_to_meet_by():
    assert "DDPRUN_INIT_METHOD" not in render(job())
    assert "export DDPRUN_INIT_METHOD=file://$DDPRUN_RANKS/meeting " in render(job(init="file"))


@pytest.mark.parametrize("launcher", [*LAUNCHERS, "manual"])
def test_the_ranks_are_told_not_to_look_at_their_nodes(launcher):
    assert "DDPRUN_PREFLIGHT" not in render(job(launcher=launcher))
    assert "export DDPRUN_PREFLIGHT=0" in render(job(launcher=launcher, preflight=False))


def test_an_executable_is_announced_to_the_worker():
    assert "-m slurmddp.worker --no-python ./train -x\n" in render(job(no_python=True, command=("./train", "-x")))


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for recipe_path in RECIPES:
        for name in LAUNCHERS:
            (GOLDEN / f"{recipe_path.stem}-{name}.sbatch").write_text(recipe(recipe_path, name))
    for image in IMAGES:
        (GOLDEN / f"{image}.sbatch").write_text(contained(image))
    (GOLDEN / "sweep.sbatch").write_text(swept("srun"))

"""The script is the same text for the same job, clean for shellcheck, and nothing of a user's can escape its place."""

import os
import re
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

import slurmddp
from slurmddp.config import resolve
from slurmddp.config.job_array import Array, Task
from slurmddp.config.job_spec import JobSpec
from slurmddp.errors import UsageError
from slurmddp.runs.layout import RunDir
from slurmddp.script import render as render_module
from slurmddp.submission.sweep_grid import parse, settings, tasks

GOLDEN = Path(__file__).parents[1] / "golden"
RECIPES = Path(__file__).parents[2] / "jobs"
LAUNCHERS = ["srun", "fork", "torchrun"]
ON_FILE = [("mnist", launcher) for launcher in LAUNCHERS] + [(name, "srun") for name in ("cifar10", "gpt", "linear")]
"""Each recipe, and one of them by each launcher: what a launcher changes is the same for all."""
IMAGES = {"apptainer": "/images/torch.sif", "pyxis": "nvcr.io#nvidia/pytorch:25.10-py3"}
PACKAGE = str(Path(slurmddp.__file__).parent)


def render(spec: JobSpec, **more) -> str:
    """Render where slurmddp's own Python is called python3."""
    with mock.patch.object(sys, "executable", "python3"):
        return render_module.render(spec, **more)


def job(**values) -> JobSpec:
    return JobSpec(**{"job_name": "x", "python": "python3"} | values)


def recipe(name: str, launcher: str) -> str:
    options = {"launcher": launcher, "python": "python3"}
    return render(resolve.resolve(options=options, words=(), job_file=RECIPES / f"{name}.toml", environ={}).spec)


@pytest.mark.parametrize(("name", "launcher"), ON_FILE)
def test_a_recipes_script_is_the_one_on_file_each_time_and_clean(name, launcher):
    """After an intended change: python tests/script/test_render.py writes the files anew; read their difference."""
    file = GOLDEN / f"{name}-{launcher}.sbatch"
    assert recipe(name, launcher) == recipe(name, launcher) == file.read_text()
    check_shell(file)


def test_every_recipe_has_its_script_on_file():
    assert {name for name, _ in ON_FILE} == {path.stem for path in RECIPES.glob("*.toml")}


def contained(runtime: str) -> str:
    spec = job(
        nodes=2,
        gpus_per_node="2",
        container=IMAGES[runtime],
        supervisor_python="/usr/bin/python3",
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
    assert (
        r'slurmddp_program=(train.py "\$\$x")' in text
        and '-m slurmddp.worker \\\n    "${slurmddp_program[@]}"\n' in text
    )


@pytest.mark.parametrize("runtime", IMAGES)
def test_a_containers_script_is_the_one_on_file_and_clean(runtime):
    file = GOLDEN / f"{runtime}.sbatch"
    assert contained(runtime) == file.read_text()
    check_shell(file)


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_lines_on_each_node_and_words_before_the_python_make_a_clean_script(tmp_path, launcher):
    lines = {"before_ranks": ('mkdir -p "/tmp/$USER"',), "after_ranks": ('rm -r "/tmp/$USER"',)}
    if launcher != "fork":
        lines["wrap"] = """nsys profile -o 'x y.%q{SLURM_PROCID}' sh -c 'echo "$RANK" `hostname`; exec "$@"' -"""
    file = tmp_path / "job.sbatch"
    file.write_text(render(job(nodes=2, launcher=launcher, command=("train.py",), **lines)))
    check_shell(file)


def check_shell(file: Path) -> None:
    subprocess.run(["bash", "-n", file], check=True)
    shellcheck = Path(sys.executable).parent / "shellcheck"
    found = subprocess.run([shellcheck, "--severity=style", file], capture_output=True, text=True, check=False)
    assert found.stdout == ""


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


@pytest.mark.parametrize("field", ["partition", "account", "constraint", "reservation", "dependency", "qos"])
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
    lines = "module load m\nsource v/bin/activate\nexport A='1'\nif true; then\n  export B=2\nfi\nexport C=3\n"
    assert f"{lines}trap - DEBUG ERR RETURN\n" in script


def test_set_up_lines_follow_the_order_in_which_they_were_given():
    order = ("setup", "module", "setup", "venv", "module")
    script = render(job(module=("a", "b"), venv="v", setup=("module purge", "cd code"), setup_order=order))
    lines = "module purge\nmodule load a\ncd code\nsource v/bin/activate\nmodule load b\n"
    assert f"{lines}trap - DEBUG ERR RETURN\n" in script


@pytest.mark.parametrize(
    ("changes", "written"),
    [
        ({"command": ("train.py", "runs/{SLURM_JOB_ID}/a b")}, """train.py runs/"${SLURM_JOB_ID:?}"'/a b'\n"""),
        (
            {"command": ("train.py", "{SLURM_JOB_ID}", "$SLURM_JOB_ID", "{x}")},
            """ "${SLURM_JOB_ID:?}" "\\$SLURM_JOB_ID" '{x}'\n""",
        ),
        ({"env": ("OUT=/s/{SLURM_JOB_NAME}",)}, """export OUT=/s/"${SLURM_JOB_NAME:?}"\n"""),
        ({"venv": "$TMP/${SLURM_TMPDIR}2/$e"}, """source "${TMP:?}"/"${SLURM_TMPDIR:?}"2/"${e:?}"/bin/activate\n"""),
        ({"venv": "{SLURM_TMPDIR}/e"}, """source "${SLURM_TMPDIR:?}"/e/bin/activate\n"""),
        (
            {"command": ("a.py",), "resume_args": "--from {checkpoint} --id {SLURM_JOB_ID}", "checkpoints": "*.pt"},
            """(a.py --from "${SLURMDDP_CHECKPOINT}" --id "${SLURM_JOB_ID:?}")""",
        ),
    ],
)
def test_a_value_of_the_time_of_the_job_is_written_as_its_variable(changes, written):
    assert written in render(job(**changes))


@pytest.mark.parametrize("launcher", [*LAUNCHERS, "manual"])
def test_set_up_lines_may_put_another_python_before_the_users_own(tmp_path, launcher):
    own, other = tmp_path / "own" / "bin", tmp_path / "other" / "bin"
    for folder in (own, other):
        folder.mkdir(parents=True)
        (folder / "python3").touch(mode=0o755)

    def found(*setup: str) -> str:
        with mock.patch.object(sys, "executable", f"{own}/python3"):
            text = render_module.render(JobSpec(job_name="x", setup=setup, launcher=launcher))
        lines = text[text.index("export PATH=") :].split("trap -")[0]
        (python,) = {line.split()[0] for line in text.splitlines() if line.strip().startswith("python")}
        code = f"{lines}command -v {python}"
        return subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True).stdout.strip()

    assert found("true") == f"{own}/python3"
    assert found(f"export PATH={other}:$PATH") == f"{other}/python3"
    (own / "python").touch(mode=0o755)
    assert found("true") == f"{own}/python"
    assert "PATH=" not in render(job(setup=("true",)))


def test_a_variable_that_differs_from_rank_to_rank_is_refused():
    with pytest.raises(UsageError, match="{SLURM_PROCID} differs from rank to rank; the program can read it"):
        render(job(command=("train.py", "{SLURM_PROCID}")))


@pytest.mark.parametrize("line", ["trap 'rm -r $TMP' EXIT", "a && trap clean INT 0; b"])
def test_a_trap_that_would_never_run_is_refused(line):
    with pytest.raises(UsageError, match=r"^--setup: .*trap.* would never run"):
        render(job(setup=("true", line)))
    render(job(setup=("trap - ERR", "echo trap EXIT 0", "trap 'echo 0 EXIT' USR1")))


@pytest.mark.parametrize("content", [b"a\r\nb", b"a\0b", b"\xff"])
def test_a_set_up_file_that_sbatch_would_refuse_is_refused(content, tmp_path):
    file = tmp_path / "setup.sh"
    file.write_bytes(content)
    with pytest.raises(UsageError):
        render(job(setup_file=str(file)))


def test_a_missing_template_or_set_up_file_is_named():
    said = "--template: 'none.j2' cannot be read: No such file.*; the template to extend is /.*/base.sbatch.j2"
    with pytest.raises(UsageError, match=said):
        render(job(template="none.j2"))
    with pytest.raises(UsageError, match="--setup-file: 'none.sh' cannot be read"):
        render(job(setup_file="none.sh"))


def own(tmp_path: Path, text: str) -> JobSpec:
    file = tmp_path / "own.j2"
    file.write_text(text)
    return job(template=str(file), partition='a"b')


def test_a_template_of_ones_own_extends_ours_by_blocks(tmp_path):
    text = '{% extends "base.sbatch.j2" %}{% block setup %}echo {{ job.partition | shell }}\n{% endblock %}'
    text += "{% block environment %}{{ super() }}export A=1\n{% endblock %}"
    script = render(own(tmp_path, text))
    assert "\necho 'a\"b'\n" in script
    assert "export PYTHONUNBUFFERED=1\nexport A=1\n" in script
    assert "srun --kill-on-bad-exit=1" in script


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("#!/bin/sh\necho {{ job.partition }}", "without a filter"),
        (
            '{% extends "base.sbatch.j2" %}\n{% block modules %}{% endblock %}',
            "line 2: base.sbatch.j2 has no block 'modules'; its blocks are header, .* finish, see /.*base.sbatch.j2",
        ),
        ("#!/bin/sh\necho {{ job.nothing }}", "no attribute 'nothing'"),
        ("#!/bin/sh\necho {{ nothing }}", "line 2: 'nothing' is undefined; /.*/base.sbatch.j2 shows the names"),
        ("#!/bin/sh\n{{ 1 / 0 }}", "line 2: division by zero"),
        ("#!/bin/sh\n{{ range(10**9) | shell }}", "line 2: Range too big"),
        ("#!/bin/sh\n{{ job.nodes + 'x' }}", "line 2: unsupported operand"),
        ("#!/bin/sh\n{% if %}", "line 2"),
        ("#!/bin/sh\n{{ job.__class__.__mro__ | shell }}", "unsafe"),
        ("#!/bin/sh\n{{ cycler.__init__.__globals__ | shell }}", "unsafe"),
        ("echo", "begin with #!"),
        ('{% extends "/etc/passwd" %}', "etc/passwd"),
        ('{% extends "bas.sbatch.j2" %}', "'bas.sbatch.j2' is not there; only base.sbatch.j2 can be extended or"),
        ('{% include "../pyproject.toml" %}', "pyproject"),
    ],
)
def test_a_template_that_is_wrong_or_hostile_is_one_line(text, message, tmp_path):
    with pytest.raises(UsageError, match=message) as caught:
        render(own(tmp_path, text))
    assert "\n" not in str(caught.value)


def test_a_folder_that_the_script_makes_is_private(tmp_path):
    script = render(job(job_name="r"))
    head = script[: script.index("# --- The ranks rendezvous")]
    environ = {"SLURM_JOB_ID": "7", "PATH": "/usr/bin:/bin"}
    subprocess.run(["bash", "-s"], input=(head + "echo x\n").encode(), cwd=tmp_path, env=environ, check=True)
    run = RunDir(tmp_path / "jobs" / "r")
    assert run.path.stat().st_mode & 0o777 == 0o700
    assert run.batch_log("7").read_text() == "x\n" and (run.logs / "7").is_dir()


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


def test_what_to_type_has_the_heads_other_name():
    text = render(job(launcher="manual", nodes=2, nodelist="n[1-2]", head_address="{host}i"))
    assert text.count("--master-addr=n1i ") == 2 and "master-addr=n1 " not in text


def test_nodes_without_names_are_placeholders_that_are_explained():
    text = render(job(launcher="manual", nodes=2))
    assert "# NODE0 and so on are placeholders: replace them by the names of your nodes" in text
    assert "--master-addr=NODE0" in text and "# --- On NODE1\n" in text
    assert "localhost" in render(job(launcher="manual"))


BY_HAND = """
mkdir() { echo started; exit 0; }
"""
"""Stands for the rest of what is typed, which begins by making the run's folder."""


@pytest.mark.parametrize("pasted", [True, False])
@pytest.mark.parametrize(
    ("setup", "status", "told"),
    [
        (("true", "(exit 9)"), 9, "slurmddp: set-up failed with status 9: ( exit 9 )\n"),
        (("source gone",), 1, "gone: No such file or directory\nslurmddp: set-up failed with status 1: source gone\n"),
        (("source rc.sh", "set -eu"), 0, "started\n"),
    ],
)
def test_what_is_typed_by_hand_stops_at_a_set_up_line_that_fails(tmp_path, monkeypatch, setup, status, told, pasted):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rc.sh").write_text("trap : DEBUG\nfalse\ntrue\n")
    text = BY_HAND + render(job(launcher="manual", setup=setup))
    (tmp_path / "typed").write_text(text)
    words = [] if pasted else ["typed"]
    done = subprocess.run(
        ["bash", *words], input=text, stderr=subprocess.STDOUT, stdout=subprocess.PIPE, text=True, check=False
    )
    assert done.returncode == status
    assert done.stdout.endswith(told)


def test_the_supervisor_is_told_what_the_job_asks_for():
    text = render(job(rendezvous="file", reset=True, max_requeues=3, env=("A=1", "TOKEN"), time="1"), reset_number=2)
    assert "--max-requeues=3 --signal-lead=15 --signal-margin=45" in text
    assert "--rendezvous-file --reset=2 --require-env=TOKEN" in text
    assert "--hang-timeout=10m" in render(job(hang_timeout="10m"))
    assert "--single-attempt" in render(job(), single_attempt=True)
    assert not any(option in render(job()).rpartition("exec ")[2] for option in ("--re", "--hang"))


def test_the_supervisors_python_is_slurmddps_own_unless_another_is_given():
    def python(**values) -> str:
        return render(job(**values)).rpartition("\nexec ")[2].split()[0]

    assert python() == python(python="/other/python") == python(container="/x.sif") == "python3"
    assert python(container="/x.sif", supervisor_python="/usr/bin/python3") == "/usr/bin/python3"


@pytest.mark.parametrize("launcher", [*LAUNCHERS, "manual"])
def test_every_module_of_slurmddp_finds_its_package_in_another_python(launcher):
    text = render(job(launcher=launcher, python="/other/python"))
    start = f"{PACKAGE}/attach/bootstrap.py" if launcher == "manual" else '"$SLURMDDP_BOOTSTRAP"'
    assert text.count(f"/other/python -u {start} slurmddp.") == (2 if launcher == "torchrun" else 1)
    assert "/other/python -P" not in text
    assert "BOOTSTRAP" not in render(job(launcher=launcher)) + render(job(container="/x.sif", python="/other/python"))


def test_a_script_is_short_enough_to_be_read():
    command = ("train.py", "--lr", "0.1")
    assert render(job(nodes=2, gpus_per_node="8", command=command)).count("\n") <= 50
    more = {"module": ("a", "b"), "env": ("A=1",), "command": command, "nodes": 2, "gpus_per_node": "8"}
    assert render(job(**more, conda="e")).count("\n") <= 75
    assert render(job(**more, container="/x.sif")).count("\n") <= 75


@pytest.mark.parametrize("launcher", [*LAUNCHERS, "manual"])
def test_the_ranks_are_told_not_to_look_at_their_nodes(launcher):
    assert "SKIP_PREFLIGHT" not in render(job(launcher=launcher))
    assert "export SLURMDDP_SKIP_PREFLIGHT=1" in render(job(launcher=launcher, preflight=False))


def test_tracker_ids_are_left_out_on_demand_alone_and_an_executable_is_announced_to_the_worker():
    assert "TRACKER_IDS" not in render(job())
    assert "export SLURMDDP_SKIP_TRACKER_IDS=1" in render(job(tracker_ids=False))
    executable = job(no_python=True, command=("./train", "-x"))
    assert "-m slurmddp.worker \\\n    --no-python ./train -x\n" in render(executable)


LAUNCH_STARTS = {
    "the first": ({}, ["train.py", "--init_from=scratch", "a b"]),
    "a later one": (
        {"SLURMDDP_RESUME": "1", "SLURMDDP_CHECKPOINT": "out/$a 'b'.pt"},
        ["train.py", "a b", "--init_from=resume", "--from=out/$a 'b'.pt", "$x", ""],
    ),
}


def launched(script: str, words: int, environ: dict[str, str], tmp_path) -> list[str]:
    """Return the last words of the command that `launch` of a script starts."""
    srun = tmp_path / "srun"
    srun.write_text(f'#!/bin/sh\nshift $(($# - {words}))\nprintf "%s\\n" "$@"\n')
    srun.chmod(0o755)
    code = script[script.index("\nlaunch() {") : script.index("\n}\n") + 3] + "\nlaunch"
    environ = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_NNODES": "1", **environ}
    done = subprocess.run(["bash", "-ps"], input=code, env=environ, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@pytest.mark.parametrize("launcher", LAUNCHERS)
@pytest.mark.parametrize("start", LAUNCH_STARTS)
def test_a_later_start_has_the_arguments_to_resume(launcher, start, tmp_path):
    environ, expected = LAUNCH_STARTS[start]
    script = render(
        job(
            launcher=launcher,
            command=("train.py", "--init_from=scratch", "a b"),
            resume_args="--init_from=resume --from={checkpoint} '$x' ''",
            checkpoints="out/*.pt",
        )
    )
    if launcher == "torchrun":  # it expands $$ to $
        expected = [word.replace("$", "$$") for word in expected]
    assert launched(script, len(expected), environ, tmp_path) == expected
    assert "'--checkpoints=out/*.pt'" in script


def test_each_task_of_an_array_has_its_own_arguments_to_resume(tmp_path):
    values = {"resume_args": "--resume={checkpoint}", "checkpoints": "*.pt"}
    tasks = tuple(Task({"lr": lr}, job(command=("train.py", "--lr", lr), **values)) for lr in ("1", "2"))
    script = render(tasks[0].job, array=Array(tasks))
    environ = {"SLURMDDP_RESUME": "1", "SLURMDDP_CHECKPOINT": "a.pt", "SLURM_ARRAY_TASK_ID": "1"}
    assert launched(script, 4, environ, tmp_path) == ["train.py", "--lr", "2", "--resume=a.pt"]


def test_a_block_on_one_line_ends_its_line(tmp_path):
    text = "{% extends 'base.sbatch.j2' %}\n{% block setup %}echo hi{% endblock %}\n"
    assert "\necho hi\n# --- The ranks rendezvous" in render(own(tmp_path, text))


ON_NODES = ' --nodelist="${SLURMDDP_HOSTS//[[:space:]]/,}" \\\n'


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_with_spares_each_srun_is_told_its_nodes_and_nothing_else_changes(launcher, tmp_path):
    values = {"launcher": launcher, "nodes": 2, "command": ("train.py",), "before_ranks": ("true",)}
    script = render(job(**values, spares=1))
    assert script.count(f"    --overlap{ON_NODES}") == script.count(f"    --overlap --no-kill{ON_NODES}") == 1
    assert "\n#SBATCH --nodes=3\n" in script and "\n#SBATCH --no-kill\n" in script
    assert script.partition("exec ")[2].count(" --spares=1 ") == 1
    steps = {f"    --overlap{more}{ON_NODES.rstrip()}" for more in ("", " --no-kill")}
    added = {*steps, "#SBATCH --no-kill", "#SBATCH --nodes=3"}
    plain = render(job(**values)).splitlines()
    more = [line for line in script.splitlines() if line not in plain]
    others = [line for line in more if line not in added]
    assert [line.partition(" ")[0] for line in others] == ["#", "#", "#", ""], (
        "title, comments, the supervisor's options"
    )
    assert [line for line in plain if line not in script.splitlines()][1] == "#SBATCH --nodes=2"
    file = tmp_path / "job.sbatch"
    file.write_text(script)
    check_shell(file)


@pytest.mark.parametrize(("launcher", "words"), [("srun", 9), ("fork", 11), ("torchrun", 23)])
def test_with_spares_srun_gets_the_nodes_that_the_supervisor_has_chosen(launcher, words, tmp_path):
    script = render(job(launcher=launcher, nodes=2, spares=1, command=("train.py",)))
    environ = {"SLURMDDP_HOSTS": "n1 n3", "SLURM_NNODES": "2"}
    assert launched(script, words, environ, tmp_path)[:3] == ["--overlap", "--no-kill", "--nodelist=n1,n3"]


def test_the_ranks_of_other_programs_are_killed_with_the_node_that_slurm_loses():
    """They report nothing, and nothing else would end those that wait for the lost node."""
    script = render(job(nodes=2, spares=1, no_python=True, command=("./train",)))
    assert f"    --overlap{ON_NODES}" in script and "--overlap --no-kill" not in script


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for name, starter in ON_FILE:
        (GOLDEN / f"{name}-{starter}.sbatch").write_text(recipe(name, starter))
    for image in IMAGES:
        (GOLDEN / f"{image}.sbatch").write_text(contained(image))
    (GOLDEN / "sweep.sbatch").write_text(swept("srun"))


def test_the_script_of_an_expedited_job_is_not_held_when_it_fails(tmp_path):
    script = tmp_path / "a.sbatch"
    script.write_text(render(job(expedite=True)))
    check_shell(script)
    assert "#SBATCH --requeue=expedite\n" in script.read_text()
    (trap,) = re.findall("^trap .* EXIT$", script.read_text(), re.MULTILINE)
    orders = tmp_path / "orders"
    for end, order in (("exit 3", "update JobId=17 Requeue=0"), ("exit 0", ""), ("kill $$", "")):
        lines = f'scontrol() {{ echo "$@" >{orders}; }}\nSLURMDDP_JOB_ID=17\n{trap}\n{end}\n'
        orders.write_text("")
        subprocess.run(["bash", "-c", lines], check=False)
        assert orders.read_text().strip() == order
    assert "EXIT" not in render(job())

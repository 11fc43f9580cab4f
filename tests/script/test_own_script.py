"""What is added to a batch script of the user's own; all else stays, byte for byte."""

import shutil
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmddp.config import resolve
from slurmddp.config.batch_script import check_batch_script, is_batch_script, parse_batch_script
from slurmddp.config.job_files import read_batch_script
from slurmddp.config.job_spec import JobSpec
from slurmddp.config.script_options import with_header
from slurmddp.errors import UsageError
from slurmddp.script.build import build_script, diff
from slurmddp.script.launch_line import find_launch

CASES = sorted((Path(__file__).parents[1] / "own_scripts").glob("*/job.sbatch"))
LAUNCHES = {
    "01": 16, "02": 18, "03": 15, "04": 15, "05": 31, "06": 14, "07": 12, "08": 20, "09": 15, "10": 16, "11": 18,
    "12": 20, "13": 26, "14": 32, "15": 16, "16": 12, "17": 18, "18": 17,
}  # fmt: skip
"""By case: the line of the launch."""
MOST_ADDED = 25


def rendered(path: Path) -> tuple[bytes, bytes]:
    """Return the text of a script before and after."""
    script = with_header(read_batch_script(str(path)), {}, {})
    job = JobSpec(job_name="x", command=(str(path),), script=script)
    return script.text, build_script(job).text


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.parent.name)
def test_a_script_keeps_its_text_and_gets_few_lines(path):
    name = path.parent.name[:2]
    if name not in LAUNCHES:
        with pytest.raises(UsageError, match="line "):
            rendered(path)
        return
    before, after = rendered(path)
    launch = find_launch("job.sbatch", before)[0]
    assert launch.line == LAUNCHES[name]
    lines = b"".join(diff(read_batch_script(str(path)), after)).splitlines()
    added = [line for line in lines if line.startswith(b"+") and not line.startswith(b"+++")]
    removed = [line for line in lines if line.startswith(b"-") and not line.startswith(b"---")]
    assert len(added) - len(removed) <= MOST_ADDED
    assert launch.text in after and all(b"srun" in line or b"mpirun" in line or line in launch.text for line in removed)
    for shell in filter(shutil.which, ("bash", "dash") if before.startswith(b"#!/bin/sh") else ("bash",)):
        assert subprocess.run([shell, "-n"], input=after, check=False).returncode == 0


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("srun hostname\nsrun python train.py", 3),
        ("srun -n1 python prepare.py\nsrun python train.py", 3),
        ("srun bash -c 'mkdir x'\nexec srun ./run.sh", 3),
        ("if true; then\n  time srun python train.py | tee log\nfi", 3),
        ("go() {\n  srun python a.py\n}\ngo", 3),
        ("for n in a b; do\n srun -w $n python a.py &\ndone\nwait", 2),
        ("timeout 60 srun python a.py", 2),
        ("python -m torch.distributed.run a.py", 2),
        ("torchrun a.py", 2),
        ("uv run torchrun a.py", 2),
        ("apptainer exec x.sif python a.py", 2),
        ("cat <<E\nsrun python text.py\nE\nsrun python a.py", 5),
        ("# srun python comment.py\nsrun python a.py", 3),
        ('go() {\n  "${PYTHON_BIN}" \\\n    a.py --x "$1"\n}\ngo 1', 3),
        ("$PYTHON -m pip install .\n$PYTHON -u -m a.train", 3),
        ("python -m venv e\npython -W ignore -m a.train", 3),
        ("python -c 'import a' a.py\npython $SCRIPT", 3),
        ("conda install python deepspeed a.py\nconda run --no-capture-output -n e python a.py", 3),
        ("module load python deepspeed\nnumactl --cpunodebind=0 python a.py", 3),
        ("uv pip install accelerate\nuv run --extra gpu -m a.train", 3),
        ("srun --label hostname\nsrun --container-image=/images/conda --export=ALL,A=/b/env python a.py", 3),
    ],
)
def test_the_launch_is_the_statement_that_starts_the_ranks(text, line):
    assert find_launch("x", f"#!/bin/bash\n{text}\n".encode())[0].line == line


@pytest.mark.parametrize(
    ("text", "is_repeated"),
    [
        ("for n in a b; do srun python a.py $n; done", True),
        ("go() {\n srun python a.py $1\n}\ngo 1\ngo 2", True),
        ("go() {\n srun python a.py $1\n}\nfor n in a b; do go $n; done", True),
        ("function go {\n srun python a.py $1\n}\n>x\ngo 1; go 2", True),
        ("go() {\n srun python a.py $1\n}\ngo 1", False),
        ("for n in a b; do srun -w $n python a.py & done\nwait", False),
        ("for x in 1 2; do for n in a b; do srun -w $n python a.py $x & done\nwait; done", True),
        ("for n in a b; do cp $n .; done\nsrun python a.py", False),
    ],
)
def test_a_launch_that_runs_several_trainings_is_known_and_told(text, is_repeated):
    launch, notices = find_launch("x", f"#!/bin/bash\n{text}\n".encode())
    assert launch.is_repeated == is_repeated == any("runs more than once" in one for one in notices)


@pytest.mark.parametrize(
    ("line", "is_told"), [("-k", True), ("--no-kill", True), ("--no-kill=off", False), ("-N 2", False)]
)
def test_a_script_that_would_go_on_without_itself_is_told(tmp_path, line, is_told):
    path = tmp_path / "job.sbatch"
    path.write_text(f"#!/bin/bash\n#SBATCH -n 2\n#SBATCH {line}\nsrun python train.py\n")
    script = with_header(read_batch_script(str(path)), {}, {})
    built = build_script(JobSpec(job_name="x", command=(str(path),), script=script))
    assert f"#SBATCH {line}\n".encode() in built.text, "the line stays"
    said = (
        f"'{path}', line 3: by --no-kill, a job whose first node is lost runs on to its time limit without its script"
    )
    assert built.notices == ((f"{said}; leave it out",) if is_told else ())


def test_programs_that_may_train_are_named_where_one_is_chosen():
    launch, notices = find_launch("x", b"#!/bin/bash\npython prepare.py\npython train.py\n")
    assert launch.line == 2 and "line 2 starts the ranks; what stands as it was: line 3;" in notices[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("echo hello", "has no line that starts the ranks"),
        ("ssh n1 'torchrun a.py'", "line 2: ssh starts the ranks"),
        ("for n in a b; do srun -w $n python a.py & done", "no `wait` follows it"),
        ("go() { srun python a.py $1; }\nfor n in a b; do go $n & done\nwait", "line 3 starts .* again and again"),
        ("go() { srun python a.py $1; }\ngo a >a.log &\ngo b &\nwait", "line 3 starts .* again and again"),
        (
            "for n in a b; do if [ -e $n ]; then srun python a.py $n & fi; done\nwait",
            "line 2 starts .* again and again",
        ),
        ("x=$(srun python a.py)", r"line 2: the output of the launch is taken by"),
    ],
)
def test_what_cannot_be_wrapped_is_refused_by_its_line(text, message):
    with pytest.raises(UsageError, match=message):
        find_launch("x", f"#!/bin/bash\n{text}\n".encode())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"#!/bin/bash\r\n#SBATCH -N 2\r\nsrun python a.py\r\n", "line 1: it ends as on Windows"),
        (b"#!/bin/bash\n#SBATCH -N 2\n\0", "line 3: a NUL byte"),
        (b"#SBATCH -N 2\nsrun python a.py\n", "its first line must be one like #!/bin/bash"),
        (b"#!/usr/bin/perl\n#SBATCH -N 2\n", "line 1: its shell is 'perl'"),
        (b"#!/bin/bash\n" + b"#" * 5_000_000, "Slurm takes a script of 4 MB at most"),
    ],
)
def test_a_text_that_sbatch_refuses_is_refused_in_a_line(text, message):
    with pytest.raises(UsageError, match=message):
        check_batch_script("x.sbatch", text)


@pytest.mark.parametrize("name", ["x.sbatch", "x.slurm"])
def test_a_file_with_the_name_of_a_batch_script_is_one(name, tmp_path):
    """Bytes of any kind must not be taken for a program of Python."""
    (tmp_path / name).write_bytes(b"\0\xff\x7fELF")
    with pytest.raises(UsageError, match="its first line must be one like #!/bin/bash"):
        read_batch_script(str(tmp_path / name))


def test_directives_are_read_as_sbatch_reads_them():
    text = b"""#!/bin/bash
#SBATCH -J "a name" -N2 --time=1:00 # a comment
##SBATCH --account=no
# SBATCH --account=no
#SBATCH --exclusive --ntasks-per-nod 4
#SBATCH --comment='a "b" \\c'

export A=1
#SBATCH --nodes=9
"""
    script = parse_batch_script("x", text)
    found = {one.key: one.value for one in script.directives}
    assert found["job-name"] == "a name" and found["nodes"] == "2" and found["time"] == "1:00"
    assert found["comment"] == 'a "b" c' and found["exclusive"] is None and "account" not in found
    assert text[: script.header_end].endswith(b"\\c'\n")


def test_a_python_program_with_directives_is_no_batch_script():
    assert not is_batch_script("train.py", b"#!/usr/bin/env python3\n#SBATCH -N 2\n")
    assert not is_batch_script("train", b"#!/bin/sh\n'''exec' python\n")
    assert is_batch_script("train.sh", b"echo this is no Python\n")
    assert is_batch_script("train.sh", b"#!/bin/bash\n")


@given(st.binary(max_size=200))
def test_any_bytes_are_a_script_or_a_line(body):
    """The parser of bash reads what nobody would write; nothing of it is run."""
    with suppress(UsageError):
        script = check_batch_script("x", b"#!/bin/bash\n" + body)
        find_launch("x", script.text)


def test_a_hostile_name_is_not_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    script = parse_batch_script("$(touch pwned).sbatch", b"#!/bin/bash\n#SBATCH -J '$(touch pwned)'\nsrun python a.py")
    job = JobSpec(job_name="x", command=("a",), script=script, runs_dir="$(touch pwned)")
    text = build_script(job).text
    assert text.endswith(b"slurmddp_run")
    environ = {"PATH": "/usr/bin:/bin", "SLURM_JOB_ID": "1"}
    subprocess.run(["bash"], input=text.replace(b"srun python", b": srun python"), env=environ, check=False, timeout=60)
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize(
    ("line", "what", "typed"),
    [
        ("python train.py", "python starts one process", "train.py"),
        ("uv run $PY -u a.py --c b.py", "$PY starts one process", "a.py"),
        ("time ./a.py", "./a.py starts one process", "./a.py"),
        ("python prepare.py\npython train.py", "python starts one process", "prepare.py"),
        ("python -m torch.distributed.run --nproc-per-node 8 -m a.b", "python starts its processes", "-m a.b"),
        ("torchrun --nproc-per-node 8 a.py", "torchrun starts its processes", "a.py"),
        ("accelerate launch a.py", "accelerate starts its processes", "a.py"),
    ],
)
def test_a_launch_on_the_first_of_several_nodes_is_told_with_what_to_type(line, what, typed):
    text = f"#!/bin/bash\n{line}\n".encode()
    *_, told = find_launch("job.sh", text, nodes=2)[1]
    said = f"'job.sh', line 2: {what} on the first of 2 nodes alone; to start one for each GPU, type: "
    assert told == f"{said}slurmddp submit --nodes 2 {typed} ..."
    assert not any("nodes alone" in line for line in find_launch("job.sh", text)[1])


@pytest.mark.parametrize(
    "line",
    [
        *(
            "srun python a.py",
            "srun torchrun a.py",
            "mpirun python a.py",
            "bash run.sh",
            "python prepare.py\nbash run.sh",
        ),
        *(
            "python a.py &\nwait",
            "for i in 1 2; do\npython a.py &\ndone\nwait",
            "accelerate launch --use_deepspeed a.py",
        ),
    ],
)
def test_a_launch_on_all_nodes_or_that_is_not_known_is_not_told(line):
    assert not any("nodes alone" in one for one in find_launch("x", f"#!/bin/bash\n{line}\n".encode(), nodes=2)[1])


def test_the_nodes_are_those_of_the_script_and_those_that_were_typed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("job.sh").write_text("#!/bin/bash\n#SBATCH -N 2\npython a.py\n")
    for options, told in (({}, ("first of 2 nodes",)), ({"nodes": 3}, ("first of 3 nodes",)), ({"nodes": 1}, ())):
        job = resolve.resolve(options=options, words=("job.sh",), job_file=None, environ={}, configuration=())
        found = build_script(job.spec).notices
        assert len(found) == len(told) and all(words in line for words, line in zip(told, found, strict=True))

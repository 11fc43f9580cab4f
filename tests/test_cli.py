"""The command line: parsing, exit statuses, errors of one line, no files after an error."""

import json
import os
import re
import signal
import subprocess
import sys
import tomllib
from contextlib import nullcontext
from pathlib import Path

import pytest
from command_line import typed

from slurmddp import __version__
from slurmddp.cli import _explain_system_error
from slurmddp.cli.job_command import split_command_line
from slurmddp.config.job_spec import JobSpec
from slurmddp.errors import UsageError
from slurmddp.runs.layout import RunDir
from slurmddp.script.build import check_program

TAKES = {"-N": True, "--nodes": True, "--hold": False, "--requeue": False, "--no-requeue": False}


@pytest.mark.parametrize(
    ("words", "own", "job_file", "command"),
    [
        ("-N 2 train.py --nodes 3", "-N 2", None, "train.py --nodes 3"),
        ("job.toml -N 2 train.py", "-N 2", "job.toml", "train.py"),
        ("-N 2 job.toml --hold train.py x.toml", "-N 2 --hold", "job.toml", "train.py x.toml"),
        ("-N2 --nodes=3 -m pkg.train -- x", "-N2 --nodes=3", None, "-m pkg.train -- x"),
        ("-N 2 -- --task mnist -- x", "-N 2", None, "--task mnist -- x"),
        ("-- job.toml", "", None, "job.toml"),
        ("-N -5 train.py", "-N -5", None, "train.py"),
        ("job.toml", "", "job.toml", ""),
        ("a.toml b.toml", "", "a.toml", "b.toml"),
        ("--hold", "--hold", None, ""),
        ("-N", "-N", None, ""),
        ("--unknown train.py", "--unknown", None, "train.py"),
    ],
)
def test_options_end_at_the_command(words, own, job_file, command):
    assert split_command_line(words.split(), TAKES) == (own.split(), job_file, tuple(command.split()))


USER_ERRORS = [
    ("submit --nodes -1", "--nodes: '-1' is not a whole number, 1 to 2147483647"),
    ("submit --gpus-per-node 0", "--gpus-per-node: '0' is not a count"),
    ("submit --name -x", "'-x' is not allowed"),
    ("submit --partition=", "--partition: an empty text"),
    ("submit none.py", "there is no file 'none.py'"),
    ("submit none.toml", "job file 'none.toml' cannot be read"),
    ("submit -- --tsk linear", "unknown option '--tsk'; did you mean --task"),
    ("submit -- --epochs", "--epochs needs a value"),
    ("submit --epochs 3 train.py", "COMMAND is 'train.py'; write the script and then its options: train.py --epochs"),
    ("submit --launcher manual", "--launcher manual is not for the queue; type `slurmddp render --launcher manual"),
    ("render --launcher manual --init file", "--rendezvous file with --launcher manual: nothing makes a new file"),
    ("render --launcher manual --reset", "--reset with --launcher manual, which makes no batch script"),
    ("render --launcher manual -N 2 -w n[1-3]", "--nodelist names 3 nodes, but --nodes is 2"),
    ("render --launcher manual -w n[1", "'n[1' is not a list of nodes"),
    ("render --no-python", "--no-python: COMMAND is missing; name an executable"),
    ("render --no-python -- --task", "--no-python: COMMAND is '--task'; name an executable"),
    ("render --no-python ./none", "'./none' is not an executable file"),
    ("submit --gpus 4", "No such option '--gpus'; use --gpus-per-node"),
    ("submit -n 4", "No such option '-n'; use --ntasks-per-node (ranks on each node)"),
    ("run --nproc_per_node=4", "use --ntasks-per-node"),
    ("submit -o x.out", "the output of a run is in its folder, jobs/NAME/logs"),
    ("submit --mail-user=me", "No such option '--mail-user'; use --sbatch mail-user=VALUE"),
    ("submit --nodess 2", "No such option '--nodess'; did you mean --nodes or --nodelist?"),
    ("submit --gpu 2", "No such option '--gpu'; did you mean --gpus-per-node?"),
    ("submit --wrap x", "--wrap: COMMAND is missing"),
    ("run --nodes 2 --gpus-per-node 8 train.py", "'--nodes' is an option of `slurmddp submit`, but not of this"),
    ("submit job.toml", "cannot be read: No such file or directory; `slurmddp init job.toml` writes one"),
    ("submit --time 1:90:00", "--time: '1:90:00' is not a Slurm time"),
    ("submit --env 1X=3", "a KEY has letters, digits and _, no digit first"),
    ("submit --sbatch mailtype=END", "sbatch has no --mailtype; did you mean mail-type?"),
    ("submit --after nosuch", "--after: 'nosuch' is not a job id, nor a submitted run"),
    ("submit --after-ok nosuch", "--after-ok: 'nosuch' is not a job id, nor a submitted run"),
    ("submit --requeue=yes", "Option '--requeue' does not take a value; --no-requeue is the opposite"),
    ("diagnose nosuch.log", "there is no file 'nosuch.log', and 'nosuch.log' is not a job id, nor a submitted run in"),
    ("submit -- job.toml", "COMMAND is 'job.toml', a job file"),
    ("submit --nodelist n[1", "--nodelist: 'n[1' is not a list of nodes, as in n[1-4],m2"),
    ("submit --exclude n[2-1]", "--exclude: 'n[2-1]' is not a list of nodes"),
    ("submit -d afterok:train", "'afterok:train' is not a list of jobs in sbatch's form, as in afterok:17"),
    ("submit -d after:1?afterok:2,", "is not a list of jobs"),
    ("submit --time 1h30", "D-HH:MM or D-HH:MM:SS), as in 1:30:00"),
    ("submit --mem 16GB", "with K, M, G or T behind it), as in 16G"),
    ("submit --container none.sif", "--container: there is no file 'none.sif' here"),
    ("submit --container docker://a --container-mount /none:/x", "--container-mount: there is no file '/none' here"),
    ("submit --supervisor-python none", "--supervisor-python: there is no program 'none' here"),
    ("submit --python .", "--python: there is no program '.' here"),
    ("run --python none", "--python: there is no program 'none' here; check the path"),
    ("run --env NOT_SET", "--env NOT_SET: NOT_SET is not set here; export it, or give --env NOT_SET=VALUE"),
    ("render --job-name 17_3", "job name '17_3' is not allowed: letters, digits and . _ - after a first letter or"),
    ("render --gpus-per-node 99999", "'99999' is not a count from 1 to 9999, or type:count as in a100:8"),
    ("scale --gpus 1000000", "--gpus: '1000000' is not a list of whole numbers, 1 to 999999, as in 1,2,4,8"),
    ("render --port-range 80-90", "'80-90' is not FIRST-LAST with 1024 <= FIRST < LAST <= 65535"),
    ("render --exclusive", "No such option '--exclusive'; use --sbatch exclusive"),
    ("submit --standalone", "it is an option of torchrun or accelerate, and slurmddp sets the rendezvous itself;"),
    ("submit --rdzv_backend c10d", "slurmddp sets the rendezvous itself; leave it out"),
    ("submit --num_processes 2", "No such option '--num_processes'; use --nodes and --ntasks-per-node"),
    ("submit --multi_gpu", "it is an option of accelerate; leave it out, or type: accelerate launch --multi_gpu ... "),
    ("submit --parsable", "No such option '--parsable'; slurmddp sets it itself, leave it out"),
    ("submit -Z", "No such option '-Z'; --help-all lists the options"),
    ("submit -W train.py", "No such option '-W'; use `slurmddp submit --wait`"),
    ("submit -L x train.py", "No such option '-L'; use --sbatch licenses=VALUE"),
    ("submit --nice=9 train.py", "No such option '--nice'; use --sbatch nice=VALUE"),
    ("submit --node 2 train.py", "No such option '--node'; did you mean --nodes?"),
    ("sweep --chain 2", "'--chain' is an option of `slurmddp submit`, but not of this command; leave it out"),
    ("render --sbatch test-only", "--sbatch: 'test-only': use `slurmddp submit --dry-run`"),
    ("render --sbatch wrap=ls", "--sbatch: 'wrap=ls': write the program behind the options, as in: train.py --lr 0.1"),
    ("scale train.py --gpus 1,2", "would get it; type: slurmddp scale --gpus 1,2 train.py; or, if the program"),
    ("submit -- --help", "--help is not an option of the bundled worker; slurmddp submit --help-worker shows them"),
    ("--bogus", "there is no option '--bogus' of slurmddp; slurmddp --help lists what there is"),
    ("--bogus status", "there is no option '--bogus' of slurmddp status; slurmddp status --help lists what there is"),
    ("scale --efficiency x", "'x' is not a number; `slurmddp scale --help` shows what is allowed"),
    ("render --max-parallel 0", "0 is not a whole number, 1 or more"),
    ("render --container-mount /a", "--container-mount needs --container; give that, too, or leave --container-mount"),
    ("render --max-requeues 3 --no-requeue", "--max-requeues needs --requeue; give that, too, or leave --max-requeues"),
    ("submit --setup if", "--setup: bash cannot parse these lines: line 2: syntax error: unexpected end of file"),
    ("logs --rank one", "'one' is not a whole number; `slurmddp logs --help` shows what is allowed"),
    ("cluster gpu", "Got unexpected extra argument (gpu); allowed is: slurmddp cluster [OPTIONS]"),
    ("cluster --partition gpu", "No such option '--partition'; `slurmddp cluster --help`"),
    ("--runs-dir X status a", "the command; write it behind, as in: slurmddp status --runs-dir X a"),
    ("-N 2 train.py", "'-N' stands before the command; write it behind, as in: slurmddp submit -N 2 train.py"),
    ("--verison", "No such option '--verison'; did you mean '--version'?"),
    ("sbatch train.py", "there is no command 'sbatch'; slurmddp --help lists the commands"),
    ("submit --array 1-3", "use `slurmddp sweep --set KEY=VALUE,...`"),
    ("submit --array 1-3 own.sh", "in a batch script of your own write #SBATCH --array=0-3"),
    ("help submit extra", "help takes no more than the name of a command; type: slurmddp help submit\n"),
    ("help submit --nodes", "the name of a command; type: slurmddp help submit\n"),
    ("help sandbox up 2", "the name of a command; type: slurmddp help sandbox up\n"),
    ("submit --set lr=1,2 train.py", "No such option '--set'; use `slurmddp sweep --set KEY=VALUE,...`"),
    ("submit -nodes 2 train.py", "'-nodes' has one dash; type --nodes"),
    ("submit -partition=gpu", "'-partition=gpu' has one dash; type --partition=gpu"),
    ("submit \u2013nodes 2 train.py", "'\u2013nodes' begins with a long dash; an option has two short ones"),
    ("config -t 5 train.py --nodes", "would get it; type: slurmddp config -t 5 --nodes VALUE train.py; or, "),
    ("init train.py extra", "(extra); allowed is: slurmddp init [OPTIONS] [FILE]"),
    ("init job.yaml", "a job file ends in .toml; type: slurmddp init job.toml"),
    ("init exp --example", "--example requires a name; there are "),
    ("diagnose /dev/null", "'/dev/null' is not a regular file; name another, or give - for standard input"),
    ("diagnose --since 7d", "--since needs --all; add it, or leave --since out"),
    ("submit --venv none", "--venv: 'none' is not a virtual environment here: it has no bin/python"),
    ("log", "there is no command 'log'; did you mean logs?"),
    ("hlep submit", "there is no command 'hlep'; did you mean help?"),
    ("train.py --lr 1", "there is no command 'train.py'; to submit it, type: slurmddp submit train.py --lr 1"),
    ("run --ntasks-per-node 3 torchrun --nproc-per-node 2 train.py", "3 ranks on a node, but torchrun asks for 2;"),
    ("render -N", "requires an argument"),
    ("render python", "alone; name a script"),
    (
        "submit",
        "there is nothing to train; type: slurmddp submit train.py, or for the bundled example: slurmddp submit",
    ),
    ("submit --wait --json", "there is nothing to train; type: slurmddp submit train.py, or for the bundled example"),
    (
        "run accelerate launch --config_file a.yaml train.py",
        "--config_file of accelerate: there is no file 'a.yaml' in",
    ),
    ("run accelerate launch --config-file=a.yaml -m pkg", "--config-file of accelerate: there is no file 'a.yaml' in"),
    ("run -- --data .", "has neither train-images-idx3-ubyte"),
]


@pytest.mark.parametrize(("words", "message"), USER_ERRORS)
def test_a_wrong_command_line_is_one_line_with_status_2_and_leaves_no_files(words, message, tmp_path):
    done = typed(*words.split(), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("Error: ") and done.stderr.count("\n") == 1
    assert message in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("submit trian.py", "there is no file 'trian.py' in {}; did you mean 'train.py'?"),
        ("submit folder/trian.py", "there is no file 'folder/trian.py' in {}; check the path"),
        ("submit folder", "'folder' is a folder; name a script, as in: folder/train.py"),
        ("submit jobs.toml", "job file 'jobs.toml' cannot be read: No such file or directory; did you mean 'j"),
        ("submit --setup-file setpu.sh train.py", "'setpu.sh' cannot be read: No such file or directory; did you mean"),
        ("submit --setup-file setup.sh train.py", "--setup-file: bash cannot parse these lines: line 3: syntax error"),
        ("submit --setup-file windows.sh train.py", "'windows.sh' has carriage returns, as Windows writes; type: dos2"),
        ("submit --setup-file program train.py", "--setup-file: 'program' is not UTF-8 text; give a text file"),
        ("submit ./program", "program' is no Python script; name the one that it starts, or type: --no-python ./"),
        ("render job.yaml", "'job.yaml' is no Python script; a job file must end in .toml"),
        ("submit sh run.sh", "to run the program of this name, type: --no-python sh ..."),
        ("submit jobs/run", "'jobs/run' is a run, and no script; to resume it, type: slurmddp submit {}/jobs/run/spec"),
        ("submit jobs/gone/spec.toml", "the record of run 'gone' is missing; submit its script or job file again with"),
        ("submit --setup-file null.sh train.py", "--setup-file: 'null.sh' has a NUL character; give a text file"),
        ("submit --setup-file zero.sh train.py", "--setup-file: 'zero.sh' is not a regular file; give a text file"),
        ("submit --template zero.sh train.py", "--template: 'zero.sh' is not a regular file; give a text file; the"),
        ("submit zero.toml", "job file 'zero.toml' is not a regular file; give a text file"),
        ("submit zero.py", "COMMAND: 'zero.py' is not a regular file; name a script, as in: train.py"),
        ("submit --no-python folder", "there is no program 'folder' in PATH; check its name, or write ./folder"),
        ("submit --template own.j2 train.py", "bash cannot parse the script that it makes: line 2: syntax error"),
    ],
)
def test_a_wrong_file_is_named_with_those_that_are_spelled_alike(words, message, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "setup.sh").write_text("shopt -s extglob\nls !(x)\nfi\n")
    (tmp_path / "own.j2").write_text("#!/bin/bash\n)\n")
    (tmp_path / "windows.sh").write_bytes(b"cd\r\n")
    (tmp_path / "run.sh").write_text("#!/usr/bin/env bash\n")
    (tmp_path / "job.sbatch").write_text("#!/bin/bash -l\n#SBATCH -N 2\nsrun python train.py\n")
    (tmp_path / "program").write_bytes(b"\x7fELF\xff")
    (tmp_path / "job.yaml").write_text("nodes: 2\n")
    (tmp_path / "null.sh").write_bytes(b"cd\0\n")
    for name in ("zero.sh", "zero.py", "zero.toml"):
        (tmp_path / name).symlink_to("/dev/zero")
    for name in ("run", "gone"):
        RunDir.named(str(tmp_path / "jobs"), name).path.mkdir(parents=True)
        (tmp_path / "jobs" / name / "submissions.jsonl").touch()
    (tmp_path / "jobs/run/spec.toml").touch()
    for name in ("train.py", "job.toml"):
        (tmp_path / name).touch()
    before = sorted(tmp_path.iterdir())
    done = typed(*words.split(), cwd=tmp_path, PATH="/bin:/usr/bin")
    assert (done.returncode, done.stdout) == (2, "")
    assert message.format(tmp_path) in done.stderr
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    "text",
    [
        "",
        "#!/usr/bin/env python3\n#SBATCH -N 2\n",
        "#!/usr/bin/env -S uv run --script\n",
        "#!/bin/sh\n'''exec' \"/a long/bin/python3\" \"$0\" \"$@\"\n' '''\n",
        "#!/home/sh/bin/pypy\n",
    ],
)
@pytest.mark.parametrize("name", ["train", "train.txt", "train.sh"])
def test_a_python_script_may_have_any_name_and_any_start_of_python(name, text, tmp_path):
    (tmp_path / name).write_text(text)
    check_program(JobSpec(job_name="a", command=(str(tmp_path / name),)))


def test_a_script_that_cannot_be_read_is_refused(monkeypatch, tmp_path):
    def refuse(*_arguments):
        raise PermissionError(13, "Permission denied")

    (tmp_path / "train.py").touch()
    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(UsageError, match=r"train.py' cannot be read: Permission denied"):
        check_program(JobSpec(job_name="a", command=(str(tmp_path / "train.py"),)))


@pytest.mark.parametrize(
    ("first_line", "accepted"),
    [("#!/env/bin/python3", True), ("#!/bin/sh\n'''exec' /long/python", True), ("#!/bin/sh", False)],
)
def test_a_console_script_is_a_program_where_it_is_one_of_python(tmp_path, monkeypatch, first_line, accepted):
    tool = tmp_path / "nequip-train"
    tool.write_text(f"{first_line}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    job = JobSpec(job_name="a", command=("nequip-train", "-cn", "x"))
    with nullcontext() if accepted else pytest.raises(UsageError, match="--no-python nequip-train"):
        check_program(job)


def test_a_name_that_only_the_nodes_may_know_is_left_to_them():
    check_program(JobSpec(job_name="a", conda="e", command=("nequip-train", "-cn", "x")))
    with pytest.raises(UsageError, match=r"there is no file 'trian\.py'"):
        check_program(JobSpec(job_name="a", conda="e", command=("trian.py",)))


LONG = "x" * 300


@pytest.mark.parametrize(
    ("words", "environ", "status", "said"),
    [
        (["submit", "train.py --lr 0.1"], {}, 2, "; it is one word; type it without quotes: train.py --lr 0.1\n"),
        (
            ["render", "-A", "x\ty"],
            {},
            2,
            "--account: 'x\\ty' has an unprintable character; leave that character out\n",
        ),
        (["render", LONG + ".py"], {}, 1, f"Error: '{LONG}.py' cannot be read or written: File name too long\n"),
        (["render", "--", "--data", LONG], {}, 1, f"Error: '{LONG}' cannot be read or written: File name too long\n"),
        (
            ["render"],
            {"BOGUS": "1", "NODES": "2", "TESTS_X": "1"},
            0,
            "BOGUS is ignored: no option has this variable\n",
        ),
        (["render"], {"NODE": "2", "HOSTS": "a b"}, 0, "; did you mean SLURMDDP_NODES or SLURMDDP_NODELIST?\n"),
        (["render", "--module", "cuda", "--python", "python9", "--no-python", "nosuch"], {}, 0, ""),
        (["render", "--set", "nodes=1,2", "train.py", "--nodes", "{nodes}"], {}, 0, ""),
    ],
)
def test_a_line_on_stderr_says_what_may_be_meant_otherwise(words, environ, status, said, tmp_path):
    """A program that the set-up may bring is not searched; a value of a sweep behind COMMAND is the program's."""
    (tmp_path / "train.py").touch()
    done = typed(*words, cwd=tmp_path, **{f"SLURMDDP_{name}": value for name, value in environ.items()})
    assert done.returncode == status and done.stderr.count("\n") == bool(said), done.stderr
    assert done.stderr.endswith(said)
    assert "--set" not in words or "train.py --nodes 2" in done.stdout


def test_what_is_added_to_a_batch_script_is_shown_wherever_the_flag_stands(tmp_path):
    (tmp_path / "train.sbatch").write_text("#!/bin/bash\n#SBATCH -N 2\nsrun python train.py $1\n")
    before, behind = (
        typed("render", *words, cwd=tmp_path, PATH=os.environ["PATH"])
        for words in (("--diff", "train.sbatch", "--lr"), ("train.sbatch", "--lr", "--diff"))
    )
    assert behind.stdout == before.stdout and '+slurmddp_run "$@"' in behind.stdout, behind.stderr


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            PermissionError(13, "Permission denied", "/a"),
            "'/a' cannot be read or written: .*; its mode .*: ls -ld '/a'",
        ),
        (FileNotFoundError(2, "No such file", "/nodir/x"), "there is no folder '/nodir' for 'x'; make it first"),
    ],
)
def test_an_error_of_the_system_says_what_to_do(error, message):
    assert re.fullmatch(message, _explain_system_error(error))


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("submit", "there is no file 'train.py'"),
        ("run", "there is no file 'train.py'"),
        ("sweep", "there is no file 'train.py'"),
        ("scale", "how many GPUs fill a node is not known"),
    ],
)
def test_the_typical_line_of_each_command_has_only_its_options(command, message, tmp_path):
    typical = typed(command, "--help", cwd=tmp_path).stdout.rpartition("\n  slurmddp ")[2]
    done = typed(*typical.split(), cwd=tmp_path)
    assert message in done.stderr


@pytest.mark.parametrize("words", ["run --mail-user=me", "run --nnodes 2"])
def test_run_gives_no_advice_about_sbatch(words, tmp_path):
    done = typed(*words.split(), cwd=tmp_path)
    assert done.returncode == 2
    assert "--sbatch" not in done.stderr and "use --nodes" not in done.stderr


@pytest.mark.parametrize("words", ["render", "--help", "", "sandbox --help"])
@pytest.mark.parametrize(
    ("place", "unbuffered", "message"),
    [
        (">&-", "", "cannot write to standard output: it is closed"),
        (">/dev/full", "", "standard output or a file cannot be written: No space left on device"),
        (">/dev/full", "1", "standard output or a file cannot be written: No space left on device"),
        ("1</dev/null", "", "standard output or a file cannot be written: Bad file descriptor"),
    ],
)
def test_output_that_cannot_be_written_is_one_line_and_status_1(words, place, unbuffered, message, tmp_path):
    command = f'"{sys.executable}" -m slurmddp {words} {place}'
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=tmp_path,
        env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == f"Error: {message}\n"


@pytest.mark.parametrize("words", ["render", "--help", ""])
def test_a_closed_pipe_gives_no_message(words, tmp_path):
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "slurmddp", *words.split()],
        cwd=tmp_path,
        stdout=writer,
        stderr=subprocess.PIPE,
        check=False,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.parametrize("value", ["x\n#SBATCH --wrap=id", "x\r", "\x1b]0;x\x07"])
@pytest.mark.parametrize("option", ["--name", "--partition", "--mem", "--dependency", "--setup", "--template"])
def test_a_hostile_value_is_shown_harmlessly_on_one_line(option, value, tmp_path):
    done = typed("submit", option, value, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1 and done.stderr.rstrip("\n").isprintable()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [["submit", "--nodes", "2"], ["submit", "--dry-run"]])
def test_no_slurm_is_status_3_and_leaves_no_files(words, tmp_path):
    done = typed(*words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("Error: sbatch was not found; ") and done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_control_characters_from_slurm_are_escaped(tmp_path):
    """The scontrol is a stand-in."""
    scontrol = tmp_path / "scontrol"
    scontrol.write_text('#!/bin/sh\nprintf "scontrol: error: \\033[2Jgone\\n" >&2; exit 1\n')
    scontrol.chmod(0o755)
    done = typed("cancel", "17", cwd=tmp_path, PATH=f"{tmp_path}:/bin:/usr/bin")
    said = "Error: nothing was cancelled: the controller does not answer (\\x1b[2Jgone)\n"
    assert (done.returncode, done.stderr) == (3, said)


def test_render_needs_no_cluster_and_writes_nothing_but_the_script(tmp_path):
    done = typed("render", "--nodes", "2", "--gpus-per-node", "8", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("#!/bin/bash\n# mnist: ")
    assert list(tmp_path.iterdir()) == []


def test_an_option_of_the_job_behind_the_command_is_refused_with_the_corrected_line(tmp_path):
    (tmp_path / "train.py").write_text("")
    done = typed("render", "-t", "5", "train.py", "--lr=1", "-N", "2", "--seed", "a b", "--nodes=3", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "Error: '-N' stands behind COMMAND, and 'train.py' would get it; type: "
        "slurmddp render -t 5 -N 2 --nodes=3 train.py --lr=1 --seed 'a b'; or, if the program is to get it: "
        "slurmddp render -t 5 -- train.py --lr=1 -N 2 --seed 'a b' --nodes=3\n"
    )
    meant = typed("render", "-t", "5", "--", "train.py", "--nodes=3", cwd=tmp_path)
    assert meant.returncode == 0 and "\n    train.py --nodes=3\n" in meant.stdout


@pytest.mark.parametrize(
    "option",
    [["-c", "a.yaml"], ["-t", "0.5"], ["-p", "3"], ["-w", "4"], ["-c", "4"], ["-N2"], ["-data"], ["-path", "x"]],
)
def test_another_short_option_goes_to_the_program(option, tmp_path):
    (tmp_path / "train.py").write_text("")
    done = typed("render", "train.py", *option, cwd=tmp_path)
    assert done.returncode == 0 and f"train.py {' '.join(option)}" in done.stdout
    may_be_meant = f"passed to the program: {option[0]}; what is for slurmddp stands before 'train.py'\n"
    assert done.stderr == (may_be_meant if option[0] in ("-t", "-p") else "")


@pytest.mark.parametrize(
    "words", [[], ["-h"], ["render", "-h"], ["submit", "--help"], ["run", "--help"], ["--version"]]
)
def test_help_is_on_stdout(words, tmp_path):
    done = typed(*words, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


def test_a_bug_keeps_its_traceback(tmp_path):
    code = "from slurmddp.cli import job_command, main; job_command.config = None; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "render"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "AttributeError" in done.stderr


def test_run_prints_its_folder_where_the_machines_name_does_not_resolve(tmp_path):
    machine = ["unshare", "--user", "--map-root-user", "--uts", "sh", "-c", 'hostname no-such-name && exec "$@"', "sh"]
    if subprocess.run([*machine, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine gives no namespaces")
    (tmp_path / "train.py").write_text("import os\nprint('world size', os.environ['WORLD_SIZE'])\n")
    words = ["run", "--ntasks-per-node", "2", "--name", "here", "--json", "train.py"]
    done = subprocess.run(
        [*machine, sys.executable, "-m", "slurmddp", *words],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (result,) = json.loads(done.stdout)["jobs"]
    run = Path(result["run"])
    assert run == tmp_path / "jobs" / "here"
    ranks = run / "logs" / result["job_id"] / "0.0"
    assert sorted(path.name for path in ranks.glob("*.out")) == ["0.out", "1.out"]
    assert "world size 2" in (ranks / "0.out").read_text()


def test_a_failing_script_fails_the_run(tmp_path):
    (tmp_path / "bad.py").write_text("raise ValueError('no')\n")
    done = typed("run", "--ntasks-per-node", "1", "bad.py", cwd=tmp_path, OMP_NUM_THREADS="1")
    assert done.returncode == 1
    assert "ValueError: no" in done.stdout
    logs = re.escape(str(tmp_path / "jobs" / "bad" / "logs"))
    assert re.search(rf"ValueError: no; see {logs}/local-\S+/0\.0/0\.out$", done.stderr.splitlines()[-1])


def fake_python(folder: Path, *lines: str) -> str:
    """Return the path of a stand-in for Python and so for torchrun, which takes seconds to start."""
    path = folder / "python"
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(0o755)
    return str(path)


def test_a_run_that_no_rank_explains_names_its_log(tmp_path):
    done = typed("run", "--python", fake_python(tmp_path, "exit 3"), "--name", "x", cwd=tmp_path)
    assert done.returncode == 1
    assert "status 3, and no rank left a reason; see " in done.stderr.splitlines()[-1]


def test_an_interrupted_run_says_where_its_output_is(tmp_path):
    python = fake_python(tmp_path, "echo begun", "exec /bin/sleep 60")
    with subprocess.Popen(
        [sys.executable, "-m", "slurmddp", "run", "--python", python, "--name", "x"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=300)
    assert process.returncode == 130
    place = next(path.parent for path in tmp_path.glob("jobs/x/logs/*/0.0/0.out"))
    assert f"interrupted; the output is in {place}\n" in said


def test_the_project_names_its_version_once():
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())
    assert project["project"]["dynamic"] == ["version"]
    assert typed("--version", cwd=Path("/")).stdout == f"slurmddp {__version__}\n"


@pytest.mark.parametrize("words", ["render x.py", "init"])
def test_a_removed_working_directory_is_one_line(words, tmp_path):
    code = "import os, sys; os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone')\n"
    code += f"from slurmddp.cli import main; sys.argv[1:] = {words.split()!r}; main()"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "Error: the working directory no longer exists; type: cd DIR\n")

"""Outputs of any job: files, folders and standard input, behind prefixes, and hostile ones."""

import io
import json
import os
import random
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from slurmddp.diagnose import output_files
from slurmddp.diagnose.output_files import diagnose_output
from slurmddp.errors import UsageError

MET = tomllib.loads((Path(__file__).parent / "fixtures" / "met.toml").read_text())["log"]
OOM = """\
step 1
Traceback (most recent call last):
  File "train.py", line 3, in <module>
    x = torch.randn(10**12).cuda()
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.
"""
LOST_PEER = """\
step 1
Traceback (most recent call last):
  File "train.py", line 4, in <module>
    loss.backward()
RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.77.0.2]:25296
"""


def clock(index: int) -> str:
    return f"{index // 3600 % 24:02}:{index // 60 % 60:02}:{index % 60:02}"


PREFIXES = {
    "ISO 8601": "2026-03-04T{clock}.123456Z ",
    "zone": "2026-03-04T{clock}+01:00 ",
    "brackets": "[2026-03-04 {clock}] ",
    "log4j": "2026-03-04 {clock},123 INFO  ",
    "time of day": "{clock} ",
    "journald": "Mar  4 {clock} n7 python[123]: ",
    "mpirun": "[1,3]<stderr>:",
    "Ray": "(RayTrainWorker pid=2113, ip=10.0.0.5) ",
    "Kubernetes": "2026-03-04T{clock}.123456789Z stderr F ",
    "kubectl": "[pod/train-0/main] ",
    "docker compose": "trainer-1  | ",
    "pdsh": "gpu07: ",
    "DeepSpeed": "10.0.0.1: ",
    "stream": "stderr: ",
    "srun --label": " 3: ",
    "number": "[3] ",
    "torch": "[rank3]: ",
    "torchrun": "[default3]:",
    "quotation": "> ",
    "indentation": "    ",
    "loguru": "2026-03-04 {clock}.123 | ERROR    | ",
    "rich": "[03/04/26 {clock}] ERROR    ",
}


def judge(content: bytes | str):
    return diagnose_output(["-"], io.BytesIO(content.encode() if isinstance(content, str) else content))


@pytest.fixture(scope="module")
def bare():
    """The causes that the texts people have shown have without a prefix."""
    return [judge(met["text"]).cause for met in MET]


@pytest.mark.parametrize("prefix", PREFIXES)
def test_a_prefix_before_each_line_changes_nothing(prefix, bare):
    found = []
    for met in MET:
        lines = met["text"].splitlines()
        found.append(
            judge(
                "".join(PREFIXES[prefix].format(clock=clock(index)) + line + "\n" for index, line in enumerate(lines))
            ).cause
        )
    assert found == bare


@pytest.mark.parametrize(
    "change",
    ["{line}\r\n", "\x1b[31m{line}\x1b[0m\n", " {percent}%|###  | 3/900 [00:01<00:09, 9.1it/s]\r{line}\n"],
    ids=["line ends of Windows", "colours", "progress bars"],
)
def test_the_form_of_the_lines_changes_nothing(change, bare):
    found = []
    for met in MET:
        lines = met["text"].splitlines()
        found.append(
            judge("".join(change.format(line=line, percent=index % 100) for index, line in enumerate(lines))).cause
        )
    assert found == bare


def test_ranks_and_hosts_of_prefixes_are_used():
    lines = [f"gpu07: {line}\n" for line in OOM.splitlines()]
    assert judge("".join(lines)).host == "gpu07"
    shuffled = [
        f"[1,{rank}]<stderr>:{line}\n" for rank, text in ((0, LOST_PEER), (5, OOM)) for line in text.splitlines()
    ]
    ranks = [0] * 5 + [5] * 5
    random.Random(1).shuffle(ranks)  # noqa: S311 the same order each time
    own = {0: iter(shuffled[:5]), 5: iter(shuffled[5:])}
    found = judge("".join(next(own[rank]) for rank in ranks))
    assert (found.cause, found.rank) == ("gpu-memory", 5)


@pytest.mark.parametrize("order", [["rank0.log", "rank1.log"], ["rank1.log", "rank0.log"], ["."]])
def test_several_files_are_several_ranks(order, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("rank0.log").write_text(LOST_PEER)
    Path("rank1.log").write_text(OOM)
    found = diagnose_output(order, io.BytesIO())
    assert (found.cause, found.rank, found.evidence[0].place) == ("gpu-memory", 1, "rank1.log:5")
    assert found.others == "1 rank then lost its peer"


@pytest.mark.parametrize("name", ["x.gz", "x.xz", "x.bz2", "x.zst"])
def test_what_to_type_for_a_compressed_file_is_said(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("rank0.log").write_text(OOM)
    program = {"x.gz": "zcat", "x.xz": "xzcat", "x.bz2": "bzcat", "x.zst": "zstdcat"}[name]
    Path(name).touch()
    for words in ([name], ["rank0.log", name], ["."]):
        with pytest.raises(
            UsageError, match=rf"{name}' is compressed; type: {program} '{name}' \| slurmddp diagnose -$"
        ):
            diagnose_output(words, io.BytesIO())


def test_a_summary_behind_a_traceback_does_not_hide_it():
    summary = "".join(f"wandb: {letter * 3} {number}\n" for number, letter in enumerate("abcdefghijklmnopq"))
    assert judge(OOM + summary).cause == "gpu-memory"
    assert judge(OOM + "".join(f"epoch {number}\n" for number in range(30))).sure != "certain"


def test_a_line_of_thousands_of_characters_is_cut_around_the_match():
    line = "x" * 2000 + " NCCL WARN Cuda failure 'out of memory' " + "y" * 1500
    found = judge(line + "\n")
    assert "out of memory" in found.evidence[0].text and len(found.evidence[0].text) < 400


@pytest.mark.parametrize("seed", range(0, 300, 3))
def test_a_hostile_file_has_no_certain_cause(seed):
    chance = random.Random(seed)  # noqa: S311 the same bytes each time
    size = chance.choice((1, 100, 5000, 200_000 if seed % 50 == 0 else 3000))
    content = chance.randbytes(size)
    if seed % 2 == 0:
        content = bytes(chance.choice(b"[]{}():,.-0123456789 TracebkEor\n\r\t\x1b\xc3") for _ in range(size))
    found = judge(content)
    assert found.cause in ("none", "unknown") and found.sure != "certain"


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "slurmddp", "diagnose", *words], capture_output=True, text=True, check=False
    )


def test_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("x.log").write_text(OOM)
    done = run("x.log")
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "x.log: the memory of the GPU is full [gpu-memory]")
    (found,) = json.loads(run("--json", "x.log").stdout)["diagnoses"]
    assert (found["cause"], found["evidence"][0]["file"], found["evidence"][0]["number"]) == ("gpu-memory", "x.log", 5)
    Path("y.log").write_text("step 1\n")
    done = run("y.log")
    assert done.returncode == 0
    assert done.stdout.startswith("y.log: no failure is to be seen: no line at the end names one; ")
    done = run("x.log", "nosuch")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "Error: there is no file 'nosuch'; name the files of one job, or one RUN or JOBID\n"
    Path("jobs/a").mkdir(parents=True)
    Path("jobs/a/submissions.jsonl").touch()
    done = run("jobs")
    assert (done.returncode, done.stderr) == (2, "Error: 'jobs' is a folder of runs; name one of them\n")


SUMMARY = """\
Root Cause (first observed failure):
[0]:
  time      : {time}
  host      : {host}
  rank      : {rank} (local_rank: 0)
  exitcode  : -9 (pid: 33)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 33
============================================================
"""


def test_of_the_summaries_of_several_nodes_the_earliest_counts():
    late, early = ("2026-01-05_10:00:09", "n2", 4), ("2026-01-05_10:00:02", "n1", 1)
    log = "step 1\n" + "".join(SUMMARY.format(time=time, host=host, rank=rank) for time, host, rank in (late, early))
    found = judge(log.encode())
    assert (found.cause, found.rank, found.host) == ("rank-killed", 1, "n1")
    assert found.evidence[0].text == "exitcode  : -9 (pid: 33)"
    before = SUMMARY.format(time="2026-01-05_02:00:00", host="n3", rank=7)
    assert judge(("step 1\n" + before + log).encode()).rank == 1, "eight hours earlier was another failure"


def test_an_exception_of_a_kind_that_is_not_known_is_not_said_to_come_again():
    trace = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n    go()\n'
    found = judge(f"{trace}mypkg.errors.QueueClosed: 3\n".encode())
    assert (found.cause, found.again) == ("exception", None)
    assert judge(f"{trace}mypkg.errors.QueueClosed: 503 busy, try again later\n".encode()).cause == "service-busy"
    assert judge(f"{trace}ValueError: 3\n".encode()).again is False


STEPS = "".join(f"step {step} loss 0.{step}\n" for step in range(200))
CONDA = "CondaError: Run 'conda init' before 'conda activate'\n"
PREEMPTED = "slurmstepd: error: *** JOB 33 ON n1 CANCELLED AT 2026-01-05T10:00:00 DUE TO PREEMPTION ***\n"
BEGIN = "[INFO] accelerator is cuda\nloading model\nready\n"


def test_an_exception_that_a_job_outlived_is_no_cause_while_it_goes_on():
    """Nor is one of a process of its own, as those of Ray, nor one that is logged again and again."""
    raised = ("Traceback (most recent call last):", "  File 'a', line 1", "ValueError: bad answer", "answer rejected")
    caught = "".join(f"(Worker pid=7) {line}\n" for line in raised)
    text = (caught + STEPS) * 3 + caught + STEPS[:100]
    assert judge(text.encode()).cause == "none"
    assert judge((text + caught).encode()).cause == "exception"
    assert judge((text + "srun: error: n1: task 0: Exited with exit code 1\n").encode()).cause == "exception"


IGNORED = """step 9 loss 0.1
Exception ignored in: <function _MultiProcessingDataLoaderIter.__del__ at 0x7f2b1c4d8a60>
Traceback (most recent call last):
  File "/opt/torch/utils/data/dataloader.py", line 1101, in __del__
    w.join(timeout=5)
ValueError: this process is closed
"""


IGNORED_TWICE = IGNORED + IGNORED.partition("__del__ at 0x7f2b1c4d8a60>\n")[2]
SEEN = "no failure is to be seen: "
OOM_KILL = "slurmstepd: error: Detected 1 oom_kill event in StepId=17.0. Some of the step tasks have been OOM Killed.\n"


def test_a_message_at_the_head_of_one_file_is_no_cause_of_a_good_end_in_another(tmp_path):
    (tmp_path / "x.err").write_text(CONDA)
    (tmp_path / "x.out").write_text(STEPS)
    found = diagnose_output([str(tmp_path / "x.err"), str(tmp_path / "x.out")], io.BytesIO())
    assert (found.cause, found.what.partition("; ")[0]) == (
        "none",
        f"{SEEN}no line at the end names one",
    )


FRAMES = 'Traceback (most recent call last):\n  File "/a/t.py", line 9, in train\n    step()\n'
BAR = "Map:  70%|#####   | 7/10 [6:39:53<4:31:33, 17.07 examples/s]"
TORCHRUN = "Root Cause (first observed failure):\n[0]:\n  rank      : 0 (local_rank: 0)\n  exitcode  : 1 (pid: 4)\n"


@pytest.mark.parametrize(
    ("log", "cause", "said"),
    [
        ("", "unknown", "empty"),
        ("step 1 loss 0.3\nstep 2 loss 0.2\ntraining done\n", "none", "ended well"),
        (f"{BEGIN}{OOM}{BEGIN}step 1\n{FRAMES}KeyError: 'lr'\n", "exception", "KeyError"),
        (f"{STEPS}{PREEMPTED}", "preempted", ""),
        (f"step 1\n{PREEMPTED}{STEPS}", "none", ""),
        (f"{OOM}{BEGIN}{LOST_PEER}{BEGIN}{OOM.replace('step 1', STEPS)}", "gpu-memory", ""),
        (f"{OOM}{BEGIN}{OOM}{BEGIN}{STEPS}done\n", "none", "seems to have ended well"),
        (CONDA + STEPS, "none", ""),
        (CONDA + "bash: train: command not found\n", "shell-setup", ""),
        (IGNORED, "none", ""),
        (IGNORED_TWICE, "exception", "closed"),
        (
            f'{STEPS}    train()\n  File "/a/t.py", line 9, in train\n    x = y\n      ^^^\nValueError: 3\n',
            *("exception", ""),
        ),
        (
            STEPS
            + '  File "t.py", line 2\n    o="x"\n    ^\n^\nSyntaxErrorSyntaxError: : invalid syntaxinvalid syntax\n',
            *("exception", ""),
        ),
        (
            f"{STEPS}torch.multiprocessing.spawn.ProcessExitedException: process 3 terminated with signal SIGKILL\n",
            *("rank-killed", "rank 3"),
        ),
        (f"{STEPS}run.sh: line 27: cd: /home/me/x: No such file or directory\n", "file-missing", ""),
        (
            f"{STEPS}slurmstepd: error: pyxis:     [INFO] Creating squashfs filesystem...\n{OOM_KILL}",
            *("out-of-memory", ""),
        ),
        (f"{STEPS}KeyError: 'RANK'\n", "rank-unset", ""),
        (f"{STEPS}Traceback (most recent call last):\n  File 'a'\nKeyError: 'RANK'\n", "rank-unset", ""),
        (f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 MiB.\n{FRAMES}", "gpu-memory", ""),
        (f"ERROR: in the loop: RuntimeError('CUDA out of memory. Tried 2',)\n{FRAMES}", "gpu-memory", ""),
        (
            (
                f"{BAR}[E x.cpp:1] Rank 3 successfully reached monitoredBarrier, but received errors while waiting for "
                "send/recv from rank 0. Please"
            ),
            *("collective-timeout", "rank 0"),
        ),
        (
            "RuntimeErrorx = y  # forward\n: \nExpected to have finished reduction in the prior iteration before\n",
            *("unused-parameters", ""),
        ),
        (f"mine.QueueClosed: 3\nTypeError: no str\n{FRAMES}", "exception", "TypeError: no str"),
        (f"TypeError: no str\nTypeError: no str\nloading\n{TORCHRUN}", "exception", "TypeError: no str"),
        (
            (
                "FileExistsError: [Errno 17] File exists:\n'/data/S043'\n\nsrun: error: n1: task 3: Exited with exit "
                "code 1\n"
            ),
            *("exception", "'/data/S043'"),
        ),
        (
            (
                f"{FRAMES}torch._dynamo.exc.BackendCompilerFailed: backend='inductor' raised:\nImportError: "
                "cannot import name 'k' from 'triton.x' (/a)\n"
            ),
            *("compile-failed", "triton.x has no k"),
        ),
        (
            f"{CONDA}{BAR}slurmstepd: error: *** JOB 3 ON n1 CANCELLED AT 2026-01-05T10:00:00 DUE TO TIME LIMIT ***\n",
            *("time-limit", ""),
        ),
        (
            (
                "sbatch: unrecognized option '--x'\nsbatch: error: Batch job submission failed: Unable to contact "
                "slurm controller (connect failure)\n"
            ),
            *("controller-silent", ""),
        ),
        (
            (
                "slurmstepd: error: pyxis: container start failed with error code: 1\nslurmstepd: error: pyxis:   "
                "  [ERROR] Command not found: nvidia-container-cli, see\n"
            ),
            *("container-failed", "nvidia-container-cli"),
        ),
        ("step 1\nFATAL: the parameter server has gone away\n", "last-words", "gone away"),
        ("step 1 loss: nan\nstep 2 loss: nan\n", "not-finite", "nan"),
        ("ValueError: 3\n" + STEPS, "none", ""),
        ("retry after ConnectionError: x\nstep 1\n", "none", ""),
        ("ERROR: one sample is bad\nTraining finished successfully\n", "none", "ended well"),
    ],
)
def test_a_log_is_told_by_its_last_start_and_its_last_words(log, cause, said):
    """Also where no traceback is whole; what came long before a good end is no cause, and accuses no rank."""
    found = judge(log.encode())
    assert (found.cause, said in found.what) == (cause, True), found.what
    assert cause not in ("none", "unknown") or found.rank is None


def test_standard_input_without_an_end_is_refused(monkeypatch):
    monkeypatch.setattr(output_files, "MOST_BYTES", 2**21)
    with (
        Path("/dev/zero").open("rb") as endless,
        pytest.raises(UsageError, match=r"^standard input has too much text: .* zcat FILE \| tail -c 1G \| slurmddp"),
    ):
        diagnose_output(["-"], endless)


def test_a_sparse_output_is_read_at_its_ends(tmp_path):
    path = tmp_path / "x.log"
    path.write_text("begun\n")
    os.truncate(path, 10**11)
    with path.open("a") as file:
        file.write("\n" + OOM)
    found = diagnose_output([str(path)], io.BytesIO())
    assert found.cause == "gpu-memory" and found.evidence[0].number == 0

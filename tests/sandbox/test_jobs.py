"""Jobs on the sandbox: what a cluster gives them, and how the client programs carry what they are given."""

import os
import subprocess
import sys

import pytest

CONNECT = """
import os, socket, time
host = socket.gethostname()
rank = int(os.environ["SLURM_PROCID"])
with socket.create_server(("0.0.0.0", 20000 + rank)):
    other = 15 - rank
    deadline = time.monotonic() + 60
    while True:
        try:
            socket.create_connection((f"n{other // 8 + 1}", 20000 + other), 1).close()
            break
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
    print(rank, host, socket.gethostbyname(host), os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
    time.sleep(2)
"""


@pytest.fixture
def submit(slurm, wait_for_job, tmp_path):
    """Return a function that runs a batch script to its end and returns what it printed."""

    def run(body, *options):
        script = tmp_path / "job.sbatch"
        script.write_text(f"#!/bin/bash\n{body}\n")
        output = tmp_path / "job.out"
        job = slurm("sbatch", "--parsable", f"--output={output}", *options, str(script)).strip()
        record = wait_for_job(job)
        assert record["JobState"] == "COMPLETED", output.read_text()
        return output.read_text()

    return run


def test_sixteen_ranks_on_two_nodes_have_their_host_their_gpus_and_reach_each_other(submit, tmp_path):
    (tmp_path / "connect.py").write_text(CONNECT)
    shape = ("-N2", "--ntasks-per-node=8", "--gpus-per-node=8")
    lines = submit(f"srun '{sys.executable}' -IS '{tmp_path}/connect.py'", *shape).splitlines()
    ranks = {int(rank): rest for rank, *rest in map(str.split, lines)}
    assert sorted(ranks) == list(range(16))
    for rank, (host, address, gpus) in ranks.items():
        assert host == f"n{rank // 8 + 1}"
        assert address == f"10.77.0.{rank // 8 + 1}"
        assert gpus == "0,1,2,3,4,5,6,7"


def test_inside_a_job_the_real_programs_answer_as_the_user_in_the_folder_it_was_submitted_from(
    submit, sandbox, tmp_path
):
    lines = ("id -un; pwd; touch made-by-job", "type -P srun scontrol")
    ask = ('scontrol show hostnames "$SLURM_JOB_NODELIST"', "srun hostname")
    user, folder, *text = submit("\n".join([*lines, *ask]), "-N2", f"--chdir={tmp_path}").splitlines()
    assert user == subprocess.run(["id", "-un"], capture_output=True, text=True, check=True).stdout.strip()
    assert folder == str(tmp_path) and (tmp_path / "made-by-job").stat().st_uid == os.getuid()
    assert not [line for line in text if str(sandbox.files.folder) in line]
    assert sorted(text[2:]) == ["n1", "n1", "n2", "n2"]


HOSTILE = [b"", b" ", b"a b", b"'", b'"', b"\\", b"$HOME", b"`id`", b"a\nb\n", b"\xff\xfe", "é".encode(), b"-x", b"*"]


def test_words_reach_a_program_byte_for_byte(slurm_env, tmp_path):
    """`srun` hands its words on, so the ones that arrive are the ones that the client was given."""
    show = "import sys; sys.stdout.write(ascii([word.encode(errors='surrogateescape') for word in sys.argv[1:]]))"
    command = ["srun", "-n1", sys.executable, "-ISX", "utf8", "-c", show, *HOSTILE]
    result = subprocess.run(command, env=slurm_env, capture_output=True, check=True, cwd=tmp_path)
    assert result.stdout.decode() == ascii(HOSTILE)


@pytest.mark.parametrize("name", ["with space", "new\nline", "é", os.fsdecode(b"\xff")])
def test_the_working_folder_is_kept_whatever_its_name_and_whatever_pwd_says(slurm_env, tmp_path, name):
    folder = tmp_path / name
    folder.mkdir()
    stale = {**slurm_env, "PWD": "/"}
    subprocess.run(["srun", "-n1", "touch", "here"], env=stale, check=True, cwd=folder)
    assert (folder / "here").exists()


def test_a_working_folder_that_is_gone_is_said(slurm_env, tmp_path):
    folder = tmp_path / "gone"
    folder.mkdir()
    command = ["bash", "-c", f"rmdir '{folder}'; sinfo"]
    result = subprocess.run(command, env=slurm_env, cwd=folder, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "sinfo: error: the working folder no longer exists" in result.stderr

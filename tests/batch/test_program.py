"""The supervisor as a program: how it is called, what it takes over, and how little it needs to start."""

import os
import resource
import signal
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmddp import supervisor_options, variables
from slurmddp.attach import BOOTSTRAP
from slurmddp.batch import __main__ as program
from slurmddp.runs.files import read_records
from slurmddp.runs.layout import RunDir
from slurmddp.supervisor_options import Options

counts = st.integers(min_value=0, max_value=2**31)


@given(
    st.builds(
        Options,
        max_restarts=counts,
        max_requeues=st.none() | counts,
        signal_lead=counts,
        signal_margin=counts,
        port_range=st.tuples(counts, counts).map(lambda ports: "{}-{}".format(*ports)),
        rendezvous_file=st.booleans(),
        reset=st.none() | counts,
        require_env=st.lists(st.from_regex(r"[A-Z_]+", fullmatch=True)).map(tuple),
        record=st.booleans(),
        single_attempt=st.booleans(),
        finish=st.booleans(),
    )
)
def test_what_the_script_writes_is_what_the_supervisor_reads(given_options):
    assert supervisor_options.parse(supervisor_options.build_arguments(given_options)) == given_options


def test_a_script_that_waits_since_before_an_upgrade_is_read():
    assert supervisor_options.parse(["--protocol=1", "--max-restarts=0"]) == Options(max_restarts=0)


def test_typed_outside_of_a_job_it_says_so_in_a_line(capsys, monkeypatch):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert program.main([]) == 2
    assert " slurmddp: SLURM_JOB_ID is not set; this is started by a batch script" in capsys.readouterr().out


CALLS = {
    "with an environment and without input": (
        'launch () { read -r line; [ "$A" = 1 ] && [ -z "$line" ] && return 7; }',
        7,
    ),
    "killed, with a shell's status": ("launch () { kill -9 $$; }", 137),
    "longer than an argument can be": ("launch () { true " + "x " * 200_000 + "; }", 0),
    "with extended patterns": ("shopt -s extglob\nlaunch () \n{ \n    case ab in @(ab|c)) return 7 ;; esac\n}", 7),
    "whatever a shell's settings were": ('launch () { false; [ "$MODE" = mine ] && [ "$BASH_ENV" ]; }', 0),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_function_of_the_script_runs(name, tmp_path):
    code, status = CALLS[name]
    (tmp_path / "rc").write_text("MODE=site\n")
    shell = {"BASH_ENV": str(tmp_path / "rc"), "MODE": "mine", "SHELLOPTS": "posix:errexit"}
    environ = {"A": "1", "PATH": os.environ["PATH"], **shell}
    assert program.call_function(code.encode(), "launch", environ) == status


def test_soft_limits_become_the_hard_ones():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(64, before[1]), before[1]))
        program.raise_soft_limits()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


SCONTROL = """#!/bin/sh
case "$*" in
  "show hostnames"*) echo n1 ;;
  *"show job"*) echo "JobId=7 JobName=x UserId=u(1) JobState=RUNNING Requeue=1 Restarts=0 BatchHost=n1" ;;
  *"show node"*) echo "NodeName=n1 NodeAddr=10.0.0.1" ;;
esac
"""


@pytest.fixture
def batch(tmp_path):
    """Return a function that runs the supervisor as the batch script does; `scontrol` is a recorded stand-in."""
    shims = tmp_path / "bin"
    shims.mkdir()
    for name, text in (("scontrol", SCONTROL), ("sinfo", "#!/bin/sh\n")):
        (shims / name).write_text(text)
        (shims / name).chmod(0o755)
    environ = {
        "PATH": f"{shims}:{os.environ['PATH']}",
        variables.RUN_DIR: str(tmp_path / "run"),
        variables.JOB_ID: "7",
        variables.HOSTS: "n1",
        "MASTER_ADDR": "n1",
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NODELIST": "n1",
        "SLURMD_NODENAME": "n1",
        "SLURM_NTASKS": "1",
    }

    def run(launch: str, *words: str, python: tuple[str, ...] = (sys.executable,)) -> subprocess.CompletedProcess[str]:
        RunDir(tmp_path / "run").logs.mkdir(parents=True, exist_ok=True)
        command = [*python, "-P", "-u", "-m", "slurmddp.batch", *words]
        encoding = {name: os.environ[name] for name in ("PYTHONIOENCODING",) if name in os.environ}
        return subprocess.run(
            command, input=launch, env=environ | encoding, capture_output=True, text=True, check=False
        )

    return run


def test_it_runs_from_launch_to_end(batch, tmp_path):
    done = batch('launch () { echo "$SLURMDDP_HEAD_NODE_ADDR"; echo "0 done" >"$SLURMDDP_ATTEMPT_DIR/0.end"; }')
    assert done.returncode == 0, done.stderr
    assert "10.0.0.1\n" in done.stdout
    kinds = [event["event"] for event in read_records(RunDir(tmp_path / "run").events)]
    assert kinds == ["attempt_start", "attempt_end", "job_end"]


def test_the_shell_that_hands_the_functions_over_is_no_zombie(batch):
    launch = 'launch() { ps -o stat= --ppid "$PPID" | grep -c Z; echo "0 done" >"$SLURMDDP_ATTEMPT_DIR/0.end"; }'
    script = f'{launch}\nexec "$@" < <(declare -f)'
    done = batch("", python=("bash", "-c", script, "bash", sys.executable))
    assert done.returncode == 0 and "\n0\n" in done.stdout, done.stdout


def test_a_finish_function_runs_after_each_attempt(batch):
    launch = 'launch () { echo "77 rank 0 on n1: x" >"$SLURMDDP_ATTEMPT_DIR/0.end"; }'
    done = batch(launch + '\nfinish () \n{ echo "own finish, $SLURMDDP_STATUS"; }', "--finish")
    assert done.returncode == 77
    assert "own finish, 77\n" in done.stdout


@pytest.mark.parametrize("word", ["--max-restart=1", "--max-restarts=x", "--max-restarts", "--finish=1", "17"])
def test_a_wrong_option_is_refused_in_a_line(word, capsys):
    assert program.main([word]) == 2
    said = capsys.readouterr().out
    assert said.endswith(f" slurmddp: {word} is no option of this supervisor; submit the job again\n")


def test_what_was_said_to_another_attempt_does_not_reach_this_one():
    """As where sbatch is typed in a job."""
    said = {variables.STATUS: "0", variables.STOP_AT: "1000", variables.RENDEZVOUS_FILE: "file:///x", "A": "1"}
    assert program.build_rank_environment(said) == {"A": "1", variables.BOOTSTRAP: str(BOOTSTRAP)}


def test_a_reason_of_any_characters_is_said_in_any_locale(batch, monkeypatch):
    monkeypatch.setenv("PYTHONIOENCODING", "latin-1")
    launch = 'launch () { echo "77 rank 0 on n1: a \u2192 b" >"$SLURMDDP_ATTEMPT_DIR/0.end"; }'
    done = batch(launch)
    assert done.returncode == 77 and "a \u2192 b" in done.stdout


def test_an_ignored_end_of_children_does_not_hide_their_status(batch):
    ignored = ("bash", "-c", 'trap "" CHLD; exec "$@"', "bash", sys.executable)
    done = batch("launch () { kill -9 $$; }", "--max-restarts=0", python=ignored)
    assert done.returncode == 137


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_at_once_whatever_the_shell_had_ignored(batch, number):
    launch = f"launch () {{ kill -{number} $PPID; sleep 0.3; }}"
    ignored = ("bash", "-c", 'trap "" TERM INT; exec "$@"', "bash", sys.executable)
    assert batch(launch, python=ignored).returncode == -number


def test_it_imports_the_standard_library_and_of_the_package_the_values_at_the_bottom_alone():
    code = "import sys; import slurmddp.batch.__main__; print(*sorted(sys.modules), sep='\\n')"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    names = done.stdout.splitlines()
    known = sys.stdlib_module_names | {"slurmddp", "__main__", "sitecustomize"}  # the last is Debian's own
    loaded = {name.partition(".")[0] for name in names} - known
    assert {name for name in loaded if not name.startswith(("_", "distutils-precedence"))} == set()
    values = {"errors", "exit_codes", "outcome", "supervisor_options", "text", "trust", "variables", "version"}
    rooms = {name.split(".")[1] for name in names if name.startswith("slurmddp.")}
    assert rooms <= {"attach", "batch", "runs", "slurm", "watchdog"} | values


def test_the_names_of_a_jobs_variables_are_no_options():
    from slurmddp.config.job_spec import JOB_FIELDS  # noqa: PLC0415 - one test alone

    options_by_name = {f"SLURMDDP_{field.name.upper()}" for field in JOB_FIELDS.values()}
    assert not options_by_name & variables.NAMES

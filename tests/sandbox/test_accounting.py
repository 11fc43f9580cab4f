"""A sandbox with slurmdbd and MariaDB; 8 s."""

import os
import signal
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from accounting import up_with_accounting

from slurmddp import sandbox as room
from slurmddp.cluster.inspect import query_cluster
from slurmddp.errors import ClusterError
from slurmddp.monitoring import status
from slurmddp.monitoring.status import slurm_answers
from slurmddp.runs.lookup import Target
from slurmddp.slurm import environment


@pytest.fixture(scope="module")
def accounting():
    try:
        room.check_machine(accounting=True)
    except ClusterError as error:
        if os.environ.get("SLURMDDP_TESTS_REQUIRE_SLURM") == "1":
            raise
        pytest.skip(str(error))
    running = up_with_accounting(room.Plan(name=f"sacct-{os.getpid()}", nodes=1, accounting=True))
    yield running
    running.down()


@pytest.mark.usefixtures("slurm_programs")
def test_the_accounting_says_what_the_user_may_charge(accounting):
    env = {**os.environ, **accounting.environment()}
    assert accounting.daemons()["daemons"].keys() == {"munged", "mariadbd", "slurmdbd", "slurmctld"}
    before = query_cluster(env, accounts=True)
    assert before.unlearned == ()
    user = environment.user()
    for words in (
        ("account", "physics"),
        ("account", "biology", "parent=physics"),
        ("qos", "urgent"),
        ("user", user, "account=physics", "defaultaccount=physics", "qos+=urgent"),
        ("user", user, "account=biology"),
    ):
        subprocess.run(["sacctmgr", "-i", "add", *words], env=env, capture_output=True, check=True)
    found = query_cluster(env, accounts=True)
    assert {"physics", "biology"} <= set(found.accounts)
    assert {"normal", "urgent"} <= set(found.qos)
    assert found.default_account in found.accounts
    assert query_cluster(env).accounts is None
    columns = ["sacctmgr", "--noheader", "show", "qos", "format=Name,Preempt,PreemptMode,GraceTime"]
    assert b"urgent" in subprocess.run(columns, env=env, capture_output=True, check=True).stdout


def daemon(sandbox, name):
    """Return the process of one of the sandbox's daemons."""
    supervisor = sandbox.files.supervisor().pid
    children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
    (found,) = [int(child) for child in children if Path(f"/proc/{child}/comm").read_text().strip() == name]
    return found


@contextmanager
def stopped(pid):
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.usefixtures("slurm_programs")
def test_status_with_each_of_the_daemons_away(accounting, monkeypatch):
    """A controller that does not answer, then a slurmdbd that has ended, then both; the last test here."""
    env = {**os.environ, **accounting.environment()}
    submit = ["sbatch", "--wait", "--parsable", "--output=/dev/null", "--job-name=x", "--wrap", "exit 3"]
    job = subprocess.run(submit, env=env, capture_output=True, text=True, check=False).stdout.strip()
    controller = daemon(accounting, "slurmctld")

    def seen(timeout_s=60.0):
        monkeypatch.setattr(slurm_answers, "TIMEOUT_S", timeout_s)
        (found,) = status.query_jobs([Target(None, (job,))], env)
        return found.phase, found.source, found.outcome.exit_status, bool(found.silence)

    deadline = time.monotonic() + 30
    with stopped(controller):
        while (said := seen(1.0)) != ("failed", "sacct", "3:0", True):
            assert time.monotonic() < deadline, said
    os.kill(daemon(accounting, "slurmdbd"), signal.SIGKILL)
    assert seen() == ("failed", "scontrol", "3:0", False)
    with stopped(controller):
        assert seen(1.0) == ("unknown", "files", "", True)

"""Somebody is told what happens to a job, by a real server or a command, and the job waits for nobody."""

import json
import shlex
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from polling import until

from slurmddp.batch import notify
from slurmddp.batch.attempt import Job
from slurmddp.batch.notify import Notifier
from slurmddp.runs import events
from slurmddp.runs.layout import RunDir

END = events.JobEnd(status=0, reason="all ranks are done")


class Server:
    """A server that answers as it is told, and keeps what it got."""

    def __init__(self) -> None:
        self.answers, self.got, self.began = [], [], threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                outer.got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                answer = outer.answers.pop(0) if outer.answers else 200
                if answer == "hangs":
                    outer.began.wait(30)
                    return
                self.send_response(answer)
                self.end_headers()

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.address = f"http://127.0.0.1:{self._server.server_port}/hook/s3cret"

    def close(self) -> None:
        self.began.set()
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def server():
    made = Server()
    yield made
    made.close()


@pytest.fixture
def said():
    return []


@pytest.fixture
def teller(tmp_path, said, monkeypatch):
    """Return a function that makes a notifier, whose pauses are short."""
    for name, seconds in {"PAUSE_S": 0.01, "ANSWER_S": 0.3, "END_S": 5.0}.items():
        monkeypatch.setattr(notify, name, seconds)
    run = RunDir(tmp_path / "jobs" / "train")
    job = Job("sandbox", "17", 17, 0, "n1", "n[1-2]", ("n1", "n2"), "n1", 4, 2, run)
    return lambda target: Notifier(target, job, said.append)


def test_a_server_is_told_of_what_happens_and_of_nothing_else(server, said, teller):
    notifier = teller(server.address)
    notifier.tell("0.0", events.AttemptStart("n[1-2]", 0, None))
    where = "rank 3 on n2 in load() at data.py:40"
    hang = events.Hang(
        reason=f"{where}, while 7 ranks waited in all_reduce",
        stalled_s=45.0,
        hung_ranks=(3,),
        hung_hosts=("n2",),
        place="load() at data.py:40",
        ends=True,
    )
    notifier.tell("0.0", hang)
    notifier.tell("0.0", events.HangEnd())
    notifier.tell("0.0", events.AttemptRestart(76, "rank 3 on n2: lost its peer"))
    notifier.tell("0.1", events.JobRequeue("checkpoint saved after a signal", ()))
    notifier.tell("1.0", END)
    assert [(one["event"], one["attempt"]) for one in server.got] == [
        ("hang", "0.0"), ("restart", "0.0"), ("requeue", "0.1"), ("job_end", "1.0")
    ]  # fmt: skip
    told, restart, _, end = server.got
    assert told["text"] == f"run train (job 17) hangs: {hang.reason}"
    assert (told["ranks"], told["hosts"], told["place"]) == ([3], ["n2"], "load() at data.py:40")
    assert restart["text"] == (
        "run train (job 17) has failed, and its ranks are started again: rank 3 on n2: lost its peer"
    )
    assert end["text"] == "run train (job 17) is done: all ranks are done"
    assert end["folder"].endswith("/jobs/train") and end["cluster"] == "sandbox"
    assert said == []


def test_a_server_that_fails_is_asked_again(server, said, teller):
    server.answers = [500, 429]
    teller(server.address).tell("0.0", END)
    assert len(server.got) == 3 and said == []


@pytest.mark.parametrize(
    ("answers", "asked", "why"),
    [([404], 1, "answers 404"), ([500] * 9, 3, "answers 500"), (["hangs"] * 9, 3, "timed out")],
)
def test_what_is_not_delivered_is_one_line_without_the_address(server, said, teller, answers, asked, why):
    server.answers = answers
    teller(server.address).tell("0.0", END)
    assert len(server.got) == asked
    (line,) = said
    assert line.startswith("the notification of job_end was not delivered: ") and why in line
    assert "s3cret" not in line


def test_a_server_that_is_not_there_is_one_line(server, said, teller):
    server.close()
    teller(server.address).tell("0.0", END)
    assert len(said) == 1 and "refused" in said[0]


def test_a_job_does_not_wait_for_a_server_that_hangs(server, said, teller, monkeypatch):
    monkeypatch.setattr(notify, "ANSWER_S", 60.0)
    monkeypatch.setattr(notify, "END_S", 0.2)
    server.answers = ["hangs"] * 2
    notifier, began = teller(server.address), time.monotonic()
    notifier.tell("0.0", events.AttemptRestart(76, "x"))
    assert time.monotonic() - began < 0.2
    notifier.tell("0.0", END)
    assert time.monotonic() - began < 5 and said == []


def test_a_command_gets_the_message_and_none_of_its_words_is_a_shell(tmp_path, said, teller):
    out = tmp_path / "out"
    program = f"import sys; open({str(out)!r}, 'w').write(sys.stdin.read() + '|'.join(sys.argv[1:]))"
    teller(shlex.join([sys.executable, "-c", program, "$(touch pwned)", "a b"])).tell("0.0", END)
    message, _, words = out.read_text().rpartition("}")
    assert json.loads(f"{message}}}")["event"] == "job_end"
    assert words == "$(touch pwned)|a b"
    assert said == [] and not Path("pwned").exists()


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("/nowhere/tell", "the command cannot be run: No such file or directory"),
        ("sh -c 'echo no mail >&2; exit 3'", "the command has ended with status 3: no mail"),
        ("sh -c 'sleep 60'", "the command has not ended after 0 s"),
        ("'", "No closing quotation"),
    ],
)
def test_a_command_that_fails_is_one_line(said, teller, monkeypatch, command, why):
    monkeypatch.setattr(notify, "COMMAND_S", 0.4)
    teller(command).tell("0.0", END)
    until(lambda: said, 5, lambda: "nothing was said")
    assert said == [f"the notification of job_end was not delivered: {why}"]


def test_of_a_failure_the_diagnosis_is_told(server, teller, monkeypatch):
    found = {"cause": "gpu-memory", "what": "rank 1 had no GPU memory left", "advice": "a smaller batch"}
    monkeypatch.setattr(Notifier, "_diagnose", lambda _: found)
    teller(server.address).tell("0.0", events.JobEnd(status=77, reason="an exception; TOKEN=abcdef"))
    (message,) = server.got
    assert message["diagnosis"] == found and message["status"] == 77
    lines = message["text"].splitlines()
    assert lines[0].startswith("run train (job 17) has failed: an exception") and "abcdef" not in lines[0]
    assert lines[1:] == ["rank 1 had no GPU memory left", "a smaller batch"]


PROGRAM = """
import os
assert "SLURMDDP_NOTIFY_TARGET" not in os.environ
if os.environ["RANK"] == "1":
    raise ValueError("no such layer")
import time
time.sleep(60)
"""


@pytest.mark.parametrize("how", ["option", "script"])
def test_of_a_job_that_failed_its_diagnosis_is_told_and_the_target_is_in_no_script(cli, tmp_path, how):
    (tmp_path / "train.py").write_text(PROGRAM)
    told, target = tmp_path / "told", "sh -c 'cat >> told; echo >> told' s3cret"
    if how == "script":
        launch = f"srun bash -c 'RANK=$SLURM_PROCID exec {sys.executable} train.py'"
        (tmp_path / "train.sbatch").write_text(f"#!/bin/bash\n#SBATCH -n 2 -N 1 -J train\n{launch}\n")
        cli("submit", "--wait", "--notify", target, "train.sbatch", status=1)
    else:
        cli("submit", "--wait", "-N1", "--ntasks-per-node=2", "train.py", status=1, environ={"SLURMDDP_NOTIFY": target})
    (message,) = [json.loads(line) for line in told.read_text().splitlines()]
    assert (message["event"], message["run"], message["status"]) == ("job_end", "train", 77)
    assert message["diagnosis"]["cause"] == "exception" and "ValueError: no such layer" in message["text"]
    scripts = [path.read_text() for path in (tmp_path / "jobs" / "train").glob("*.sbatch")]
    assert scripts and not any("s3cret" in text for text in scripts)

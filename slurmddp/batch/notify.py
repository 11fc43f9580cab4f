"""Tells somebody what happens to a job, by a web hook or a command of the user's. Standard library only.

A thread does it, so that the job waits for nobody, but for a moment before it ends. What is not delivered is a line in
the batch log.
"""

import json
import queue
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime, timezone
from typing import Any, Final

from slurmddp.batch.attempt import Job
from slurmddp.exit_codes import DONE
from slurmddp.runs.events import SupervisorEvent
from slurmddp.text import mask_secrets

_WORDS: Final = {
    "hang": "hangs",
    "restart": "has failed, and its ranks are started again",
    "requeue": "goes back into the queue",
    "job_end": "has failed",
}
"""The events that are told, in words."""
TRIES: Final = 3
ANSWER_S: Final = 5.0
"""For a server to answer."""
COMMAND_S: Final = 30.0
PAUSE_S: Final = 1.0
"""After the first try; after the second it is three times as long."""
END_S: Final = 15.0
"""So long the end of a job waits for what is not delivered yet."""
REQUEUE_S: Final = 2.0
_DIAGNOSE_S: Final = 10.0
_MAY_PASS: Final = frozenset({429, *range(500, 600)})
"""The answers of a server that may take the message a moment later."""


class Notifier:
    """Tells a job's events to `target`, an address or a command."""

    def __init__(self, target: str, job: Job, say: Callable[[str], None]) -> None:
        """Take a job; `say` writes to the batch log."""
        self._target, self._job, self._say = target, job, say
        self._waiting: queue.Queue[tuple[str, Mapping[str, Any], float]] = queue.Queue()
        threading.Thread(target=self._run, name="notify", daemon=True).start()

    def tell(self, attempt: str, event: SupervisorEvent) -> None:
        """Tell an event; wait a moment before one that ends this process."""
        if event.event not in _WORDS:
            return
        self._waiting.put((attempt, event._asdict(), time.time()))
        limit_s = {"job_end": END_S, "requeue": REQUEUE_S}.get(event.event, 0.0)
        with self._waiting.all_tasks_done:  # as `join`, which knows no limit
            self._waiting.all_tasks_done.wait_for(lambda: not self._waiting.unfinished_tasks, limit_s)

    def _run(self) -> None:
        while True:
            attempt, event, at = self._waiting.get()
            try:
                deliver = _post if self._target.startswith(("http://", "https://")) else _run_command
                failure = deliver(self._target, json.dumps(self._build_message(attempt, event, at)).encode())
            except Exception as error:  # noqa: BLE001 - whatever fails here, the job goes on
                failure = str(error) or type(error).__name__
            if failure:
                self._say(f"the notification of {event['event']} was not delivered: {failure}")
            self._waiting.task_done()

    def _build_message(self, attempt: str, event: Mapping[str, Any], at: float) -> dict[str, Any]:
        """Return what is sent; `text` is what Slack, Mattermost and others show."""
        kind, name, reason = event["event"], self._job.run.job_name, str(mask_secrets(event["reason"]))
        is_done = event.get("status") == DONE
        diagnosis = self._diagnose() if kind == "job_end" and not is_done else None
        said = [f"run {name} (job {self._job.job_id}) {'is done' if is_done else _WORDS[kind]}: {reason}"]
        said += [str(diagnosis[key]) for key in ("what", "advice") if diagnosis and diagnosis.get(key)]
        return {
            "event": kind,
            "time": datetime.fromtimestamp(at, timezone.utc).isoformat(timespec="seconds"),
            "run": name,
            "job": self._job.job_id,
            "cluster": self._job.cluster,
            "attempt": attempt,
            "folder": str(self._job.run.path),
            "status": event.get("status"),
            "ranks": event.get("hung_ranks", ()),
            "hosts": event.get("hung_hosts", ()),
            "place": event.get("place"),
            "reason": reason,
            "diagnosis": diagnosis,
            "text": "\n".join(said),
        }

    def _diagnose(self) -> "dict[str, Any] | None":
        """Return what `slurmddp diagnose` says of the job; None where it does not answer, as with Python 3.9."""
        folder = (self._job.run.sweep or self._job.run).path.parent
        words = [sys.executable, "-m", "slurmddp", "diagnose", "--json", f"--runs-dir={folder}", self._job.job_id]
        with suppress(OSError, ValueError, LookupError, subprocess.TimeoutExpired):
            done = subprocess.run(words, capture_output=True, timeout=_DIAGNOSE_S, check=False)  # noqa: S603 - this Python
            return dict(json.loads(done.stdout)["diagnoses"][0])
        return None


def _post(address: str, message: bytes) -> str:
    """Send a message; return why it was not taken, empty when it was. The address may be a secret."""
    import urllib.error  # noqa: PLC0415 - it loads OpenSSL, and each supervisor would pay for it
    import urllib.request  # noqa: PLC0415 - the same

    failure = ""
    for tries in range(TRIES):
        time.sleep(PAUSE_S * 3 ** (tries - 1) if tries else 0)
        kind = {"Content-Type": "application/json"}
        request = urllib.request.Request(address, data=message, headers=kind)  # noqa: S310 - http or https
        try:
            with urllib.request.urlopen(request, timeout=ANSWER_S):  # noqa: S310 - the same
                return ""
        except urllib.error.HTTPError as error:
            failure = f"the server answers {error.code} {error.reason}"
            if error.code not in _MAY_PASS:
                break
        except (OSError, ValueError) as error:
            failure = str(getattr(error, "reason", "") or error or "no answer")
    return failure


def _run_command(command: str, message: bytes) -> str:
    """Give a message to a command of the user's on standard input; return why that failed."""
    try:
        done = subprocess.run(  # noqa: S603 - the user's own words
            shlex.split(command),
            input=message,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=COMMAND_S,
            start_new_session=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"the command has not ended after {COMMAND_S:.0f} s"
    except OSError as error:
        return f"the command cannot be run: {error.strerror}"
    words = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
    return f"the command has ended with status {done.returncode}: {words}" if done.returncode else ""

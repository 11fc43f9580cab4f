"""Pages of reports as a browser reads them, and a folder of runs to report on."""

import json
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path

from slurmddp.runs.layout import RunDir

VOID = {"meta", "br", "link"}
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"' onload=alert(3) \x1b[2J\u202e\ud800"


class Page(HTMLParser):
    """Reads a page as a browser does: its elements, their attributes, all text; refuses what is not closed."""

    def __init__(self, content: bytes) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(content.decode("utf-8"))
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, (tag, self.getpos())

    def handle_data(self, data):
        self.text += data

    def tags(self):
        return [tag for tag, _ in self.elements]


NOW = 1795305300.0
"""A few minutes after the recorded run has ended."""


def write_run(
    run: RunDir, *events: dict[str, object], job: str = "7", begin: float = NOW - 3600, gpus: int = 4
) -> None:
    """Write a run of one job on two nodes; the times of its events are seconds since its submission."""
    run.logs.mkdir(parents=True)
    if run.sweep is None:
        record = {"job": job, "time": datetime.fromtimestamp(begin, UTC).isoformat()}
        run.submissions.write_text(json.dumps(record) + "\n")
        run.spec.write_text(f'nodes = 2\ngpus-per-node = "{gpus}"\n')
    first = {"time": 0, "event": "attempt_start", "nodes": "n[1-2]", "log_offset": 0}
    head = {"job": job, "attempt": "0.0", "rank": 0, "host": "n1"}
    lines = [{"time": 0, "event": "", **head, **event} for event in (first, *events)]
    lines = [{**line, "time": begin + float(str(line["time"]))} for line in lines]
    run.events.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


USE = {str(rank): [f"n{1 + rank // 2}", 1.5, 6e9, 0.9 - rank / 10, 60e9, 80e9, 500.0] for rank in range(4)}
CRASHED = (
    {"time": 10, "event": "start", "world_size": 8, "nodes": 2},
    {"time": 20, "event": "loop", "step": 0, "total": 100},
    {"time": 40, "event": "checkpoint", "step": 20, "held_s": 0, "write_s": 0},
    {"time": 50, "event": "metrics", "step": 30, "total": 100, "values": {"loss": 2.0}},
    {"time": 55, "event": "usage", "ranks": USE},
    {"time": 60, "event": "attempt_end", "status": 76, "reason": "rank 1 on n1: ValueError: batch 7 is empty"},
    {"time": 60, "event": "restart", "status": 76, "reason": "rank 1 on n1: ValueError: batch 7 is empty"},
    {"time": 65, "attempt": "0.1", "event": "start", "world_size": 8, "nodes": 2},
    {"time": 72, "attempt": "0.1", "event": "loop", "step": 20, "total": 100},
    {"time": 152, "attempt": "0.1", "event": "metrics", "step": 100, "total": 100, "values": {"loss": 1.0}},
    {"time": 153, "attempt": "0.1", "event": "end", "status": 0, "reason": "done"},
    {"time": 154, "attempt": "0.1", "event": "attempt_end", "status": 0, "reason": "done"},
    {"time": 154, "attempt": "0.1", "event": "job_end", "status": 0, "reason": "done"},
)


def write_folder(jobs: Path) -> None:
    """Write a run that was interrupted once, and a sweep of two keys of which one setting has not started."""
    run = RunDir(jobs / "crashed")
    write_run(run, *CRASHED)
    run.attempt("7", "0.0").mkdir(parents=True)
    run.rank_record("7", "0.0", 1).write_text("76 rank 1 on n1: ValueError: batch 7 is empty\n")
    settings = [{"lr": lr, "kind": kind} for lr in ("1e-2", "1e-3") for kind in ("sgd", "adam")]
    (jobs / "lrs").mkdir()
    (jobs / "lrs" / "spec.toml").write_text("nodes = 2\n")
    record = {"job": "9", "time": datetime.fromtimestamp(NOW - 7200, UTC).isoformat(), "settings": settings}
    (jobs / "lrs" / "submissions.jsonl").write_text(json.dumps(record) + "\n")
    for index, (values, loss) in enumerate(zip(settings, (0.9, 0.4, 0.7, None), strict=True)):
        if loss is not None:
            write_run(
                RunDir(jobs / "lrs" / ",".join(f"{key}={value}" for key, value in values.items())),
                {"time": 20, "event": "loop", "step": 0, "total": 10},
                {
                    "time": 30,
                    "event": "metrics",
                    "step": 10,
                    "total": 10,
                    "values": {"loss": loss, "accuracy": 1 - loss},
                },
                {"time": 31, "event": "end", "status": 0, "reason": "done"},
                {"time": 32, "event": "job_end", "status": 0, "reason": "done"},
                job=f"9_{index}",
            )

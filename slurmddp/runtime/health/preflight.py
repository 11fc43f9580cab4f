"""Preflight: the fast checks before COMMAND. The facts travel with the claims of `runtime.rendezvous.rendezvous`."""

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from os.path import exists
from pathlib import Path
from typing import Final

from slurmddp.errors import RankError
from slurmddp.runs.findings import SERIOUS, Finding
from slurmddp.runs.training_events import Found
from slurmddp.runtime.exiting.record import write_event
from slurmddp.runtime.health.facts import Facts, gather_facts
from slurmddp.runtime.health.rules import failed_check, judge, judge_clocks, judge_marks
from slurmddp.runtime.launch.process import print_line
from slurmddp.runtime.launch.rank import Rank

SEEN_LIMIT_S: Final = 0.5
"""For the marks of other nodes to appear in the run's folder."""


class Preflight:
    """The facts of one rank; on rank 0 it also judges the facts of all."""

    def __init__(self, rank: Rank, words: Sequence[str], environment: Mapping[str, str]) -> None:
        self._rank = rank
        self.facts = gather_facts(rank, words, environment)

    def judge(self, ranks: Iterable[Facts]) -> "RankError | None":
        """Report all findings in rank 0's output and as events; return the error of what certainly breaks the job."""
        findings: list[Finding] = []
        ranks, run, attempt = sorted(ranks, key=lambda facts: facts.rank), self._rank.run_dir, self._rank.attempt
        leaders = [facts.node_rank for facts in ranks if facts.is_leader and not facts.folder_error]
        marks = {node: run.node_mark(self._rank.job, attempt, node) for node in leaders} if run else {}
        try:
            findings += judge(ranks)
            deadline = time.monotonic() + SEEN_LIMIT_S
            findings += judge_marks(ranks, lambda node: node not in marks or _sees(marks[node], deadline))
        except Exception as error:  # noqa: BLE001 - a check that fails must not end a job that would run
            findings.append(failed_check(f"{type(error).__name__}: {error}"))
        for mark in marks.values():
            with suppress(OSError):
                mark.unlink()
        self._report(findings)
        broken = next((finding for finding in findings if finding.level == "error"), None)
        return RankError(f"{broken.line}; --no-preflight starts the job all the same") if broken else None

    def compare_clocks(self, published: float, times: Sequence[tuple[str, float]]) -> None:
        """Report wrong clocks: `times` by host, read after `published`; all in seconds since 1970."""
        self._report(judge_clocks(published, time.time(), times))

    def _report(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            if finding.level in SERIOUS:
                print_line(f"{finding.level.upper()}: {finding.line}")
                what = (finding.check, finding.level, finding.host, finding.what, finding.advice)
                write_event(self._rank, Found(*what))


def _sees(mark: Path, deadline: float) -> bool:
    """Wait until a node's mark is visible here; return whether it was before the monotonic deadline."""
    while not (seen := exists(mark)) and time.monotonic() < deadline:  # noqa: PTH110 - Path.exists raises where a file system does not answer
        time.sleep(0.02)
    return seen

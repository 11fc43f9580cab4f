"""Preflight: the fast checks before COMMAND. The facts travel with the claims of `runtime.rendezvous.rendezvous`."""

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from os.path import exists
from pathlib import Path
from typing import Final

from slurmddp.background import wait_until
from slurmddp.errors import RankError
from slurmddp.runs.events import Found
from slurmddp.runs.findings import SERIOUS, Finding, Level
from slurmddp.runtime.exiting.record import write_event
from slurmddp.runtime.health.facts import Facts, gather_facts
from slurmddp.runtime.health.rules import failed_check, judge, judge_marks
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
        findings = judge_all(self._rank, ranks, SEEN_LIMIT_S, "warning")
        self.report(findings)
        broken = next((finding for finding in findings if finding.level == "error"), None)
        return RankError(f"{broken.line}; --no-preflight starts the job all the same") if broken else None

    def report(self, findings: Iterable[Finding]) -> None:
        """Report what is serious in rank 0's output and as events."""
        for finding in findings:
            if finding.level in SERIOUS:
                print_line(f"{finding.level.upper()}: {finding.line}")
                write_event(self._rank, Found(finding.check, finding.level, finding.host, finding.what, finding.advice))


def judge_all(rank: Rank, ranks: Iterable[Facts], limit_s: float, unseen: Level) -> list[Finding]:
    """Return, on rank 0, what is wrong with the facts of all ranks; remove the marks of the nodes.

    A mark counts as seen if it is visible on this node within `limit_s` seconds; `unseen` is the level if it is not.
    """
    findings: list[Finding] = []
    ranks, run = sorted(ranks, key=lambda facts: facts.rank), rank.run_dir
    leaders = [facts.node_rank for facts in ranks if facts.is_leader and not facts.folder_error]
    marks = {node: run.node_mark(rank.job, rank.attempt, node) for node in leaders} if run else {}
    try:
        findings += judge(ranks)
        deadline = time.monotonic() + limit_s
        findings += judge_marks(ranks, lambda node: node not in marks or _sees(marks[node], deadline), unseen)
    except Exception as error:  # noqa: BLE001 - a check that fails must not end a job that would run
        findings.append(failed_check(f"{type(error).__name__}: {error}"))
    for mark in marks.values():
        with suppress(OSError):
            mark.unlink()
    return findings


def _sees(mark: Path, deadline: float) -> bool:
    """Wait until a node's mark is visible here; return whether it was before the monotonic deadline."""
    return wait_until(lambda: exists(mark), deadline - time.monotonic())  # noqa: PTH110 - Path.exists raises where a file system does not answer

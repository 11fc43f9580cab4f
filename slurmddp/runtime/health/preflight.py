"""Preflight: the fast checks before COMMAND. The facts travel with the claims of `runtime.rendezvous.rendezvous`."""

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from os.path import exists
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
        self._ranks: list[Facts] = []
        self.facts = gather_facts(rank, words, environment)

    def judge(self, ranks: Iterable[Facts]) -> "RankError | None":
        """Report all findings in rank 0's output and as events; return the error of what certainly breaks the job."""
        findings: list[Finding] = []
        self._ranks = sorted(ranks, key=lambda facts: facts.rank)
        try:
            findings += judge(self._ranks)
            findings += judge_marks(self._ranks, partial(self._sees_mark, time.monotonic() + SEEN_LIMIT_S))
        except Exception as error:  # noqa: BLE001 - a check that fails must not end a job that would run
            findings.append(failed_check(f"{type(error).__name__}: {error}"))
        for facts in self._ranks:
            if self._rank.run_dir and facts.is_leader and not facts.folder_error:
                with suppress(OSError):
                    self._rank.run_dir.node_mark(self._rank.job, self._rank.attempt, facts.node_rank).unlink()
        self._report(findings)
        broken = next((finding for finding in findings if finding.level == "error"), None)
        return RankError(f"{broken.line}; --no-preflight starts the job all the same") if broken else None

    def compare_clocks(self, published: float, times: Mapping[int, float]) -> None:
        """Report wrong clocks: `times` by rank, read after `published`; all in seconds since 1970."""
        ended = time.time()
        leaders = [(facts.host, times[facts.rank]) for facts in self._ranks if facts.is_leader and facts.rank in times]
        self._report(judge_clocks(published, ended, leaders))

    def _report(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            if finding.level in SERIOUS:
                print_line(f"{finding.level.upper()}: {finding.line}")
                what = (finding.check, finding.level, finding.host, finding.what, finding.advice)
                write_event(self._rank, Found(*what))

    def _sees_mark(self, deadline: float, node: int) -> bool:
        """Wait until a node's mark is visible here; return whether it was before the monotonic deadline."""
        if self._rank.run_dir is None:
            return True
        path = self._rank.run_dir.node_mark(self._rank.job, self._rank.attempt, node)
        while not exists(path):  # noqa: PTH110 - Path.exists raises where a file system does not answer
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

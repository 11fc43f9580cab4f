"""The brief check before COMMAND. Its results travel with the rendezvous (`runtime.rendezvous.rendezvous`)."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from os.path import exists
from typing import Final

from slurmddp.errors import RankError
from slurmddp.runs.findings import SERIOUS, Finding
from slurmddp.runs.training_events import Found
from slurmddp.runtime.exiting.record import write_event
from slurmddp.runtime.health.facts import Facts, gather
from slurmddp.runtime.health.rules import failed, judge, skewed, unseen
from slurmddp.runtime.launch.output import print_line
from slurmddp.runtime.launch.rank import Rank

SEEN_LIMIT_S: Final = 0.5
"""For the marks of other nodes to be seen in the run's folder."""


class Preflight:
    """What one rank brings to the meeting; on rank 0 also the judge."""

    def __init__(self, rank: Rank, words: Sequence[str], environment: Mapping[str, str]) -> None:
        self._rank = rank
        self._ranks: list[Facts] = []
        self.facts = gather(rank, words, environment).to_text()

    def judge(self, texts: Iterable[str]) -> RankError | None:
        """Tell what is wrong, on rank 0's output and as events; return the error of what certainly breaks the job."""
        findings = list(self._look(texts))
        self._clean_up()
        self._tell(findings)
        broken = next((finding for finding in findings if finding.level == "error"), None)
        return RankError(f"{broken.line}; --no-preflight starts the job all the same") if broken else None

    def hear_clocks(self, published: float, times: Mapping[int, float]) -> None:
        """Compare the clocks that the ranks read after `published`, in seconds since 1970, by rank."""
        self._tell(skewed(self._ranks, published, time.time(), times))

    def _look(self, texts: Iterable[str]) -> Iterator[Finding]:
        try:
            self._ranks = sorted(map(Facts.from_text, filter(None, texts)), key=lambda facts: facts.rank)
            yield from judge(self._ranks)
            yield from unseen(self._ranks, partial(self._sees, time.monotonic() + SEEN_LIMIT_S))
        except Exception as error:  # noqa: BLE001 - a look that fails must not end a job that would run
            yield failed(f"{type(error).__name__}: {error}")

    def _tell(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            if finding.level in SERIOUS:
                with suppress(OSError):
                    print_line(f"{finding.level.upper()}: {finding.line}")
                write_event(self._rank, Found.of(finding))

    def _sees(self, deadline: float, node: int) -> bool:
        """Tell whether a node's mark is in the folder, as it is seen from here, before the monotonic deadline."""
        if self._rank.run_dir is None:
            return True
        path = self._rank.run_dir.node_mark(self._rank.job, self._rank.attempt, node)
        while not exists(path):  # noqa: PTH110 - Path.exists raises where a file system does not answer
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True

    def _clean_up(self) -> None:
        if self._rank.run_dir:
            for facts in self._ranks:
                if facts.is_leader and not facts.folder_error:
                    path = self._rank.run_dir.node_mark(self._rank.job, self._rank.attempt, facts.node_rank)
                    with suppress(OSError):
                        path.unlink()

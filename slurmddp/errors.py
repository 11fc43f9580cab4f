"""Every error a user can meet, split by who can put it right. No I/O.

SlurmddpError              exit 1   anything not below
├── UsageError             exit 2   wrong by itself: command line, environment, job file, template
└── ClusterError           exit 3   the cluster or its limits rule it out, or it does not answer
RankError                  exit 77  inside the job: a retry cannot help
├── PeerError              exit 76  inside the job: a peer, a port or the network; a retry can help
└── FencedError            exit 78  inside the job: another attempt owns the run; never started again
"""

from typing import ClassVar

from slurmddp import exit_codes


class SlurmddpError(Exception):
    """An error to be shown as one line: what was given, what is allowed, what to type."""

    exit_status: ClassVar[int] = 1


class UsageError(SlurmddpError):
    """The request is wrong by itself; nothing was submitted or written."""

    exit_status = 2


class ClusterError(SlurmddpError):
    """The cluster refuses the request, rules it out, or cannot be reached."""

    exit_status = 3


class RankError(SlurmddpError):
    """A rank cannot go on, and starting it again would end the same way."""

    exit_status = exit_codes.FAILED


class PeerError(RankError):
    """A rank cannot go on because of a peer, a port or the network; another attempt can succeed."""

    exit_status = exit_codes.RETRYABLE


class FencedError(RankError):
    """A rank cannot go on because another attempt owns the run by now."""

    exit_status = exit_codes.FENCED

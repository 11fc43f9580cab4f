"""Files, disks and checkpoints. Data only."""

from typing import Final

from slurmddp.diagnose.model import Rule

_TORN = "load the checkpoint before it, and write to a temporary name that is renamed when it is whole"

RULES: Final = (
    Rule(
        key="torn-checkpoint",
        pattern=r"PytorchStreamReader failed|failed finding central directory",
        example="RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory",
        what="a checkpoint is torn: it was cut off while it was written, or copied in part",
        advice=_TORN,
    ),
    Rule(
        key="torn-checkpoint",
        pattern=r"^EOFError: Ran out of input|unexpected EOF, expected \d+ more bytes|"
        r"invalid magic number; corrupt file|UnpicklingError: (?:invalid load key|pickle data was truncated)",
        example="EOFError: Ran out of input",
        what="a file that holds Python objects is empty or torn, as a checkpoint that was cut off while it was written",
        advice=_TORN,
        sure="likely",
    ),
    Rule(
        key="torn-checkpoint",
        pattern=r"legacy \.tar format",
        example="RuntimeError: Cannot use ``weights_only=True`` with files saved in the legacy .tar format. "
        "In PyTorch 2.6, we changed the default",
        what="a checkpoint is torn, or of a very old torch: it does not begin as a checkpoint does",
        advice=_TORN,
        sure="likely",
    ),
    Rule(
        key="stale-file",
        pattern=r"Stale file handle",
        example="OSError: [Errno 116] Stale file handle: '/home/me/.triton/cache/ab/cd.so'",
        what="a file on a network file system was replaced while it was open; often a compile cache that jobs share",
        advice="a cache of the node's own: --setup 'export TRITON_CACHE_DIR=$TMPDIR TORCHINDUCTOR_CACHE_DIR=$TMPDIR'",
        again=True,
        place="line",
    ),
    Rule(
        key="file-system",
        pattern=r"OSError: (?:\[Errno (?:5|108)\] (?P<why>[^:]+)|\[Errno 107\] (?P<mount>[^:]+): ')",
        example="OSError: [Errno 108] Cannot send after transport endpoint shutdown: '/scratch/data'",
        what="a file system failed: {why}{mount}",
        advice="submit it again; if it comes again, keep off the node (-x NODE), and tell those who run the cluster",
        again=True,
    ),
    Rule(
        key="disk-full",
        pattern=r"^(?!.*(?:shared memory|shm)).*(?:No space left on device|Disk quota exceeded)",
        example="OSError: [Errno 28] No space left on device",
        what="a disk is full, or the quota used up",
        advice="remove old runs and checkpoints; `df -h`, `df -i` and `quota -s` say which",
        place="line",
    ),
    Rule(
        key="file-too-large",
        pattern=r"^OSError: \[Errno 27\] File too large",
        example="OSError: [Errno 27] File too large",
        what="a file grew over the limit that its process has (ulimit -f), or over what the file system holds",
        advice="ulimit -f unlimited before sbatch, or smaller files: a checkpoint in parts",
    ),
    Rule(
        key="file-missing",
        pattern=r"^FileNotFoundError: \[Errno 2\] No such file or directory: (?P<path>.+)",
        example="FileNotFoundError: [Errno 2] No such file or directory: '/data/train.csv'",
        what="a file or folder is missing: {path}",
        advice="make it, or correct the path; it has to exist on every node",
    ),
    Rule(
        key="file-missing",
        pattern=r"can't open file '(?P<path>[^']+)': \[Errno 2\]",
        example="/usr/bin/python3: can't open file '/home/me/train.py': [Errno 2] No such file or directory",
        what="the script is not there: {path}",
        advice="correct the path; it is taken from the folder in which the job was submitted",
        place="line",
    ),
    Rule(
        key="permission",
        pattern=r"^PermissionError: \[Errno \d+\] (?P<what>.+)",
        example="PermissionError: [Errno 13] Permission denied: '/data/cache'",
        what="the program may not: {what}",
        advice="another place to write to, or chmod",
    ),
    Rule(
        key="too-many-files",
        pattern=r"Too many open files",
        example="OSError: [Errno 24] Too many open files",
        what="the program holds more files open than it may",
        advice="fewer loader workers, or torch.multiprocessing.set_sharing_strategy('file_system')",
    ),
    Rule(
        key="folder-not-shared",
        pattern=r"this node does not see (?P<folder>\S+) as rank 0 does",
        example="Error: this node does not see /tmp/jobs/a as rank 0 does after 30 s; the run's folder must lie on a "
        "file system that all nodes share",
        what="the run's folder is not the same on all nodes",
        advice="--runs-dir on a file system that all nodes share",
        place="line",
    ),
)

"""Failures of files, disks and checkpoints. Data only."""

from functools import partial
from typing import Final

from slurmddp.diagnose.rule_types import Rule, line_rule

_torn_checkpoint = partial(
    Rule,
    key="torn-checkpoint",
    advice="load the checkpoint before it; write checkpoints to a temporary name, and rename it when complete",
)

_DISK = "remove old runs and checkpoints; `df -h`, `df -i` and `quota -s` show which limit is reached"

RULES: Final = (
    _torn_checkpoint(
        pattern=r"PytorchStreamReader failed|failed finding central directory",
        example="RuntimeError: PytorchStreamReader failed reading zip archive: failed finding central directory",
        what="a checkpoint is incomplete: its writing or copying was interrupted",
    ),
    _torn_checkpoint(
        pattern=r"^EOFError: Ran out of input|unexpected EOF, expected \d+ more bytes|"
        r"invalid magic number; corrupt file|UnpicklingError: (?:invalid load key|pickle data was truncated)",
        example="EOFError: Ran out of input",
        what="a file of Python objects is empty or incomplete, for example a checkpoint whose writing was interrupted",
        sure="likely",
    ),
    _torn_checkpoint(
        pattern=r"Error while deserializing header: (?P<why>\w+)",
        example="safetensors_rust.SafetensorError: Error while deserializing header: MetadataIncompleteBuffer",
        what="a safetensors file is incomplete: its download or writing was interrupted ({why})",
        advice="remove it and download or write it again; check the space of the disk",
    ),
    Rule(
        key="checkpoint-pickled",
        pattern=r"Weights only load failed",
        example="_pickle.UnpicklingError: Weights only load failed. In PyTorch 2.6, we changed the default value of "
        "the `weights_only` argument in `torch.load` from `False` to `True`.",
        what="the checkpoint holds Python objects, which torch.load does not read since torch 2.6",
        advice="call torch.load(..., weights_only=False) if you trust the file, or save only tensors and numbers",
    ),
    _torn_checkpoint(
        pattern=r"legacy \.tar format",
        example="RuntimeError: Cannot use ``weights_only=True`` with files saved in the legacy .tar format. "
        "In PyTorch 2.6, we changed the default",
        what="a checkpoint is incomplete, or was written by a very old torch: it does not begin as a checkpoint does",
        sure="likely",
    ),
    line_rule(
        key="stale-file",
        pattern=r"Stale file handle",
        example="OSError: [Errno 116] Stale file handle: '/home/me/.triton/cache/ab/cd.so'",
        what="an open file on a network file system was replaced; often it is in a compile cache that jobs share",
        advice="keep the caches on the node: export TRITON_CACHE_DIR=$TMPDIR TORCHINDUCTOR_CACHE_DIR=$TMPDIR",
        again=True,
    ),
    Rule(
        key="file-system",
        pattern=r"OSError: (?:\[Errno (?:5|108)\] (?P<why>[^:]+)|\[Errno 107\] (?P<mount>[^:]+): ')",
        example="OSError: [Errno 108] Cannot send after transport endpoint shutdown: '/scratch/data'",
        what="a file system failed: {why}{mount}",
        advice="submit it again; if it fails again, avoid the node (-x NODE) and report it to the administrators",
        again=True,
    ),
    line_rule(
        key="deleted-while-open",
        pattern=r"Device or resource busy: '\.nfs\w+'|Directory not empty: '[^']*pymp-",
        example="OSError: [Errno 16] Device or resource busy: '.nfs00000000001c07850000000b'",
        what="removed a temporary folder on NFS while a file in it was open",
        role="consequence",
    ),
    line_rule(
        key="disk-full",
        pattern=r"^(?!.*(?:shared memory|shm)).*(?:No space left on device|Disk quota exceeded)",
        example="OSError: [Errno 28] No space left on device",
        what="a disk or a memory file system such as /dev/shm is full, or a quota is used up",
        advice=_DISK,
    ),
    Rule(
        key="disk-full",
        pattern=r"PytorchStreamWriter failed writing file|inline_container\.cc:\d+\] \. unexpected pos \d+ vs \d+",
        example="RuntimeError: [enforce fail at inline_container.cc:337] . unexpected pos 320 vs 240",
        what="a checkpoint could not be written to its end: most often the disk or a quota is full",
        advice=_DISK,
        sure="likely",
    ),
    Rule(
        key="permission",
        pattern=r"\[Errno 30\] Read-only file system: (?P<path>.+)",
        example="OSError: [Errno 30] Read-only file system: '/var/log/app/backend.log'",
        what="the program may not write to {path}: the file system is read-only on the node",
        advice="choose another folder; nodes often mount home or a container's files read-only",
    ),
    Rule(
        key="file-locked",
        pattern=r"unable to lock file, errno = (?P<number>\d+)",
        example="BlockingIOError: [Errno 11] Unable to open file (unable to lock file, errno = 11, error message = "
        "'Resource temporarily unavailable')",
        what="an HDF5 file is locked: another process has it open, or the file system has no locks",
        advice="export HDF5_USE_FILE_LOCKING=FALSE for reading; let each rank write a file of its own",
    ),
    Rule(
        key="file-missing",
        pattern=r"Parent directory (?P<path>\S+) does not exist",
        example="RuntimeError: Parent directory /tmp/play/no/such does not exist.",
        what="the folder {path} is missing, in which a file should be written",
        advice="create it on every node (os.makedirs with exist_ok=True) before it is written to",
    ),
    Rule(
        key="file-too-large",
        pattern=r"^OSError: \[Errno 27\] File too large",
        example="OSError: [Errno 27] File too large",
        what="a file grew over the process's limit (ulimit -f) or over the largest size of the file system",
        advice="run `ulimit -f unlimited` before sbatch, or write a checkpoint in several files",
    ),
    Rule(
        key="stale-file",
        pattern=r"^FileNotFoundError: .*[/.](?:triton/cache|torchinductor_\w+)/",
        example="FileNotFoundError: [Errno 2] No such file or directory: '/home/me/.triton/cache/ab/cd.ttir.tmp.pid_9'",
        what="a file of a compile cache is gone: ranks that share the cache compile at the same time",
        advice="keep the caches on the node: export TRITON_CACHE_DIR=$TMPDIR TORCHINDUCTOR_CACHE_DIR=$TMPDIR",
        again=True,
    ),
    Rule(
        key="file-missing",
        pattern=r"^FileNotFoundError: \[Errno 2\] No such file or directory: (?P<path>.+)",
        example="FileNotFoundError: [Errno 2] No such file or directory: '/data/train.csv'",
        what="a file or folder is missing: {path}",
        advice="create it or correct the path: it must exist on every node",
    ),
    line_rule(
        key="file-missing",
        pattern=r"line \d+: cd: (?P<path>.+): No such file or directory",
        example="./scripts/run_baseline.sh: line 27: cd: /home/me/state: No such file or directory",
        what="the batch script changes to the folder {path}, which is missing",
        advice="create the folder, or correct the path in the script",
    ),
    Rule(
        key="file-missing",
        pattern=r"^FileNotFoundError: (?P<what>.+)",
        example="FileNotFoundError: File weights/vitb16/CLIP-LoRA.pt does not exist.",
        what="a file or folder is missing: {what}",
        advice="create it or correct the path: it must exist on every node",
        general=True,
    ),
    line_rule(
        key="file-missing",
        pattern=r"can't open file '(?P<path>[^']+)': \[Errno 2\]",
        example="/usr/bin/python3: can't open file '/home/me/train.py': [Errno 2] No such file or directory",
        what="the script was not found: {path}",
        advice="correct the path: it is relative to the folder in which the job was submitted",
    ),
    Rule(
        key="permission",
        pattern=r"^PermissionError: \[Errno \d+\] (?P<what>.+)",
        example="PermissionError: [Errno 13] Permission denied: '/data/cache'",
        what="the program has no permission: {what}",
        advice="choose another folder, or change the permissions with chmod",
    ),
    Rule(
        key="too-many-files",
        pattern=r"Too many open files",
        example="OSError: [Errno 24] Too many open files",
        what="the program has more files open than its limit allows",
        advice="use fewer loader workers, or torch.multiprocessing.set_sharing_strategy('file_system')",
    ),
    line_rule(
        key="folder-not-shared",
        pattern=r"this node does not see (?P<folder>\S+) as rank 0 does",
        example="Error: this node does not see /tmp/jobs/a as rank 0 does after 30 s; the run's folder must lie on a "
        "file system that all nodes share",
        what="the run's folder is not the same on all nodes",
        advice="choose a folder on a file system that all nodes share: --runs-dir",
    ),
)

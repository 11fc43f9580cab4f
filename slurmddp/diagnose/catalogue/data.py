"""Failures of data loaders and of processes that the program starts. Data only."""

from functools import partial
from typing import Final

from slurmddp.diagnose.rule_types import Rule, line_rule

_processes = partial(Rule, key="start-method")
_batch = partial(Rule, key="batch-shape")

RULES: Final = (
    _processes(
        pattern=r"Cannot re-initialize CUDA in forked subprocess",
        example="RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you "
        "must use the 'spawn' start method",
        what="a worker process used the GPU, and its parent had used it before the fork",
        advice="move tensors to the GPU in the training loop and not in the data set, or use "
        'multiprocessing_context="spawn"',
    ),
    _processes(
        pattern=r"(?:Can't|[Cc]annot) pickle (?P<what>.+)",
        example="AttributeError: Can't pickle local object 'make_object_deepcopy_compatible.<locals>.__deepcopy__'",
        what="something cannot be sent to another process or saved: {what}",
        advice="use a function at the top of a module instead of a lambda or a nested one, or num_workers=0",
    ),
    _processes(
        pattern=r"An attempt has been made to start a new process before the",
        example="An attempt has been made to start a new process before the",
        what="the script starts processes when it is imported",
        advice="put its start under `if __name__ == '__main__':`",
        place="line",
    ),
    _batch(
        pattern=r"stack expects each tensor to be equal size, but got (?P<one>\[.*?\]) at entry",
        example="RuntimeError: stack expects each tensor to be equal size, but got [1] at entry 0 and [2] at entry 1",
        what="samples of one batch have different shapes",
        advice="pad or crop them in the data set, or give the DataLoader a collate_fn",
    ),
    _batch(
        pattern=r"num_samples should be a positive integer value, but got num_samples=0",
        example="ValueError: num_samples should be a positive integer value, but got num_samples=0",
        what="the data set is empty",
        advice="check the path and the pattern of its files on the node",
    ),
    line_rule(
        key="data-columns",
        pattern=r"because column names don't match|All the data files must have the same columns(?P<why>.*)",
        example="because column names don't match",
        what="the data files have different columns, and datasets cannot read them as one table{why}",
        advice="load files with the same columns together (data_files=...), or remove the columns that only some have",
        sure="likely",
    ),
    Rule(
        key="data-corrupt",
        pattern=r"(?P<why>image file is truncated|cannot identify image file.*|broken PNG file|Truncated File Read|"
        r"[Ii]nvalid data found when processing input|moov atom not found|file signature not found|"
        r"Failed to interpret file .*|BadZipFile.*|BadGzipFile.*|tarfile\.ReadError.*|truncated file: eof.*|"
        r"Parquet magic bytes not found.*|JSONDecodeError: .*|unrecognized data stream contents.*)",
        example="OSError: image file is truncated (12 bytes not processed)",
        what="a file of the data is broken or incomplete: {why}",
        advice="find the file in the traceback or by reading each once, then copy or download it again",
    ),
    Rule(
        key="loader-slow",
        pattern=r"DataLoader timed out after (?P<limit>[\d.]+) seconds",
        example="RuntimeError: DataLoader timed out after 1 seconds",
        what="the data loader gave no batch within {limit} s: its storage is slow, or a worker hangs",
        advice="copy the data to the node's disk, give it a larger timeout, or try num_workers=0",
        again=None,
    ),
    Rule(
        key="worker-killed",
        pattern=r"BrokenProcessPool|TerminatedWorkerError|A (?:process|worker) .*(?:terminated abruptly|stopped while)|"
        r"One of the subprocesses has abruptly died|RemoteDisconnected: worker",
        example="concurrent.futures.process.BrokenProcessPool: A process in the process pool was terminated abruptly "
        "while the future was running or pending.",
        what="a worker process that the program had started died: most often memory was full, or a library crashed",
        advice="use fewer workers or more --mem; run the work in the main process to see an error",
        again=None,
        sure="likely",
        general=True,
    ),
    line_rule(
        key="too-many-files",
        pattern=r"received 0 items of ancdata",
        example="RuntimeError: received 0 items of ancdata",
        what="the loader's workers have more files open than the limit allows",
        advice="call torch.multiprocessing.set_sharing_strategy('file_system'), or raise `ulimit -n`",
    ),
)

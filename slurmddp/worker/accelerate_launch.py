"""`accelerate launch` as COMMAND: its options become the environment of this rank, and its script is returned."""

import argparse
import logging
import os
import sys
from collections.abc import Iterator

from slurmddp.errors import RankError
from slurmddp.runtime.launch.process import print_line
from slurmddp.runtime.launch.rank import Rank
from slurmddp.text import count

_OF_THE_JOB = ("MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES")
"""Variables of accelerate's own launcher that the job has set already."""


def prepare(words: list[str], rank: Rank) -> list[str]:
    """Set the variables that `accelerate launch` with these words would set; return the words of its script.

    The number of ranks and their places are those of the job. Raises RankError when accelerate refuses the words.
    """
    try:
        from accelerate.commands import launch  # noqa: PLC0415 only this COMMAND needs it
    except ModuleNotFoundError as error:
        raise RankError(
            f"COMMAND is `accelerate launch`, and {sys.executable} has no {error.name}; install accelerate there, or "
            "choose another Python by --python"
        ) from error
    logging.getLogger(launch.__name__).setLevel(logging.ERROR)  # it would report its own number of processes
    args = launch.launch_command_parser().parse_args(words)
    if args.no_python:
        raise RankError("accelerate launch --no_python: leave it out, and give slurmddp's option --no-python")
    try:
        typed = args.num_processes
        args, defaults, _ = launch._validate_launch_command(args)  # noqa: SLF001 what `accelerate launch` calls
        if rank.is_main and (ignored := [*_contradictions(args, given=bool(typed or defaults), rank=rank)]):
            has = f"the job has {count(rank.world_size, 'rank')} on {count(rank.nodes, 'node')}"
            print_line(f"accelerate launch: ignored: {', '.join(ignored)}; {has}, which slurmddp starts", sys.stderr)
        args.num_processes, args.num_machines, args.main_process_port = rank.world_size, 1, 0
        found = _environment(args)
    except (ValueError, RuntimeError, OSError) as error:
        raise RankError(f"accelerate launch: {error}") from error
    os.environ.update({name: value for name, value in found.items() if name not in _OF_THE_JOB})
    return [*(["-m"] if args.module else []), args.training_script, *args.training_script_args]


def _contradictions(args: argparse.Namespace, *, given: bool, rank: Rank) -> Iterator[str]:
    """Yield the values that differ from those of the job; `given`: accelerate has not chosen num_processes itself."""
    if given and args.num_processes not in (None, rank.world_size):
        yield f"num_processes {args.num_processes}"
    if args.num_machines not in (None, 1, rank.nodes):
        yield f"num_machines {args.num_machines}"
    for name in ("main_process_ip", "main_process_port"):
        if getattr(args, name) is not None:
            yield f"{name} {getattr(args, name)}"


def _environment(args: argparse.Namespace) -> dict[str, str]:
    """Return the environment of `accelerate launch`, by the function that it chooses for these options."""
    from accelerate.utils import launch as environments  # noqa: PLC0415 only this COMMAND needs it

    if args.use_deepspeed and not args.cpu:
        found: dict[str, str] = environments.prepare_deepspeed_cmd_env(args)[1]
    elif (args.use_fsdp or args.use_megatron_lm or args.multi_gpu) and not args.cpu:
        found = environments.prepare_multi_gpu_env(args)
    else:
        found = environments.prepare_simple_launcher_cmd_env(args)[1]
    return found

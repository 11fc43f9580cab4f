"""Submit a program by submitit, as its own documentation does it for torch; print the job's id.

by_submitit.py NODES RANKS PARTITION SIGNAL_DELAY PROGRAM WORDS...
"""

import runpy
import sys

import submitit


class Program:
    """A program as a function; a stopped one comes back as it is."""

    def __init__(self, path: str, words: list[str]) -> None:
        self.path, self.words = path, words

    def __call__(self) -> None:
        """Run it as one rank."""
        submitit.helpers.TorchDistributedEnvironment().export(set_cuda_visible_devices=False)
        sys.argv = [self.path, *self.words]
        runpy.run_path(self.path, run_name="__main__")

    def checkpoint(self) -> submitit.helpers.DelayedSubmission:
        """Return what is to be submitted again."""
        return submitit.helpers.DelayedSubmission(self)


if __name__ == "__main__":
    nodes, ranks, partition, delay_s, program, *words = sys.argv[1:]
    executor = submitit.SlurmExecutor(folder="submitit")
    executor.update_parameters(
        nodes=int(nodes), ntasks_per_node=int(ranks), partition=partition, signal_delay_s=int(delay_s), time=60
    )
    print(executor.submit(Program(program, words)).job_id)

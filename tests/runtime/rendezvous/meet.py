"""Fork one process a rank described on the command line; each meets the others and writes how that went.

meet.py FOLDER DESCRIPTIONS      rank by rank, FOLDER/NUMBER.json
"""

import dataclasses
import json
import os
import sys
import time
from pathlib import Path

from slurmddp.errors import RankError
from slurmddp.runs.layout import RunDir
from slurmddp.runtime.health.preflight import Preflight
from slurmddp.runtime.launch.rank import Rank
from slurmddp.runtime.rendezvous import head_store, rendezvous

DEFAULTS = {
    "secret": "s",
    "local_world_size": 1,
    "launcher": "srun",
    "master_addr": "127.0.0.1",
    "master_port": 1,
    "job": "17",
}


def wait_for_end(pid: int) -> None:
    while Path(f"/proc/{pid}").exists():
        time.sleep(0.01)


def take_part(folder: Path, number: int, description: dict, earlier: list[int]) -> None:
    time.sleep(description.pop("delay", 0))
    limit_s, end_limit_s = description.pop("limit_s", 10.0), description.pop("end_limit_s", None)
    end, stay = description.pop("end", True), description.pop("stay", 1)
    ends_after = description.pop("ends_after", None)
    facts, clock_s = description.pop("facts", None), description.pop("clock_s", 0)
    if "run_dir" in description:
        description["run_dir"] = RunDir(Path(description["run_dir"]))
    rank = Rank(**{**DEFAULTS, **description})
    true_time = time.time
    time.time = lambda: true_time() + clock_s
    try:
        met = rendezvous.meet(rank, limit_s, None if facts is None else preflight(rank, facts))
        if ends_after is not None:
            wait_for_end(earlier[ends_after])
        if end:
            agreed = met.confirm_end(end_limit_s or 10.0)
        else:
            agreed = True
            time.sleep(stay)
        said = "met" if agreed else "alone"
    except RankError as error:
        said = f"{error.exit_status} {error}"
    answer = {"pid": os.getpid(), "said": said}
    (folder / f"{number}.json").write_text(json.dumps(answer))
    os._exit(0)


def preflight(rank: Rank, facts: dict) -> Preflight:
    """Return what a rank would bring, with some of its facts changed."""
    made = Preflight(rank, [], {})
    made.facts = dataclasses.replace(made.facts, **facts)
    return made


def main() -> None:
    head_store.ANSWER_LIMIT_S = 2.0
    folder, descriptions = Path(sys.argv[1]), json.loads(sys.argv[2])
    children = []
    for number, description in enumerate(descriptions):
        children.append(os.fork())
        if children[-1] == 0:
            take_part(folder, number, description, children[:-1])
    for child in children:
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()

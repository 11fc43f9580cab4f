"""Options of sbatch, srun and other launchers that are not options here, and what to type instead. Values; no I/O."""

from collections.abc import Container
from typing import Final, Literal, NamedTuple

Meaning = Literal["", "nodes", "ranks_per_node", "ranks", "rendezvous"]


class Foreign(NamedTuple):
    """An option of sbatch or of another launcher."""

    instead: str
    """Our option, or what to do; `{option}` is the option as it was typed."""
    meaning: Meaning = ""
    """What it says behind a launcher; `ranks` is the number on all nodes, `rendezvous` the work of slurmddp."""
    of_sbatch: bool = False
    """Whether sbatch has it, so that `--sbatch` must refuse it."""
    takes_value: bool = True

    @property
    def advice(self) -> str:
        """The whole advice, to be read behind the option's name."""
        return f"use {self.instead}" if self.instead.startswith("--") else self.instead


_RENDEZVOUS: Final = "it is an option of torchrun or accelerate, and slurmddp sets the rendezvous itself; leave it out"
_ACCELERATE: Final = "it is an option of accelerate; leave it out, or type: accelerate launch {option} ... train.py"
_OUTPUT: Final = "slurmddp sets this itself; the output of a run is in its folder, jobs/NAME/logs"
_ITSELF: Final = "slurmddp sets it itself, leave it out"
_ARRAY: Final = (
    "the tasks of an array are jobs of their own; for ranks use --nodes and --ntasks-per-node, for settings "
    "use `slurmddp sweep --set KEY=VALUE,...`"
)
_CHDIR: Final = "the job runs in the folder where it is submitted; cd there first"
_EACH: Final = "--ntasks-per-node (ranks on each node)"
_TOTAL: Final = "--nodes and --ntasks-per-node"

_ENTRIES: Final = (
    ("nnodes num-machines num-nodes nodes N", Foreign("--nodes", "nodes")),
    ("nproc-per-node nproc num-gpus ntasks-per-node", Foreign(_EACH, "ranks_per_node")),
    ("num-processes np", Foreign(_TOTAL, "ranks")),
    ("n ntasks", Foreign(_EACH, "ranks", of_sbatch=True)),
    ("tasks-per-node", Foreign(_EACH, of_sbatch=True)),
    ("gpus G gpus-per-task", Foreign("--gpus-per-node", of_sbatch=True)),
    ("gres", Foreign("--gpus-per-node")),
    ("rdzv-backend rdzv-endpoint rdzv-id rdzv-conf master-addr master-port", Foreign(_RENDEZVOUS, "rendezvous")),
    ("node-rank machine-rank main-process-ip main-process-port local-addr", Foreign(_RENDEZVOUS, "rendezvous")),
    ("standalone", Foreign(_RENDEZVOUS, "rendezvous", takes_value=False)),
    ("use-env", Foreign(_RENDEZVOUS, "rendezvous", takes_value=False)),
    ("config-file mixed-precision multi-gpu", Foreign(_ACCELERATE)),
    ("export", Foreign("--env", of_sbatch=True)),
    ("signal", Foreign("--signal-lead", of_sbatch=True)),
    ("no-requeue", Foreign("--no-requeue", of_sbatch=True)),
    ("output o error e", Foreign(_OUTPUT, of_sbatch=True)),
    ("array a", Foreign(_ARRAY, of_sbatch=True)),
    ("set", Foreign("use `slurmddp sweep --set KEY=VALUE,...`")),
    ("chdir D", Foreign(_CHDIR, of_sbatch=True)),
    ("test-only", Foreign("use `slurmddp submit --dry-run`", of_sbatch=True)),
    ("wait", Foreign("use `slurmddp submit --wait`", of_sbatch=True)),
    ("wrap", Foreign("write the program behind the options, as in: train.py --lr 0.1", of_sbatch=True)),
    ("gpu-bind input open-mode parsable", Foreign(_ITSELF, of_sbatch=True)),
)
FOREIGN: Final = {name: entry for names, entry in _ENTRIES for name in names.split()}
"""By the option's name without dashes, spelled with hyphens."""

_WITH_VALUE: Final = (
    "A=account acctg-freq a=array batch b=begin burst-buffer D=chdir cluster-constraint M=clusters comment "
    "C=constraint S=core-spec cores-per-socket cpu-freq cpus-per-gpu c=cpus-per-task deadline delay-boot "
    "d=dependency m=distribution e=error x=exclude export export-file B=extra-node-info gpu-bind gpu-freq "
    "G=gpus gpus-per-node gpus-per-socket gpus-per-task gres gres-flags hint i=input J=job-name "
    "kill-on-invalid-dep L=licenses mail-type mail-user mem mem-bind mem-per-cpu mem-per-gpu network "
    "F=nodefile w=nodelist N=nodes n=ntasks ntasks-per-core ntasks-per-gpu ntasks-per-node "
    "ntasks-per-socket open-mode o=output p=partition power prefer priority profile q=qos reservation "
    "signal sockets-per-node switches thread-spec threads-per-core t=time time-min tmp wckey wrap "
)
_WITHOUT_VALUE: Final = (
    "contiguous exclusive get-user-env H=hold ignore-pbs nice k=no-kill no-requeue O=overcommit "
    "s=oversubscribe parsable propagate Q=quiet reboot requeue spread-job test-only use-min-nodes "
    "v=verbose W=wait wait-all-nodes "
)
SHORT_OF_SBATCH: Final = dict(item.split("=") for item in (_WITH_VALUE + _WITHOUT_VALUE).split() if "=" in item)
"""The long names of sbatch's options, by their letters."""
SWITCHES_OF_SBATCH: Final = tuple(item.rpartition("=")[2] for item in _WITHOUT_VALUE.split())
"""Its options that take no value, or only one behind `=`."""
OF_SBATCH: Final = (*(item.rpartition("=")[2] for item in _WITH_VALUE.split()), *SWITCHES_OF_SBATCH)
"""The long names of its options."""

_TASKS: Final = "the script starts the ranks of the whole job; use --nodes and --ntasks-per-node"
_RANK_OUTPUT: Final = "the output of each rank is a file of its own in the run's folder; `slurmddp logs` shows it"
_EACH_GPU: Final = (
    'with one GPU bound, a rank whose local rank is not 0 ends with "invalid device ordinal"; with none bound (none), '
    "two jobs on a node take the same GPUs; leave it out, a rank sees all GPUs of its node"
)
_SRUN_ENTRIES: Final = (
    (
        "kill-on-bad-exit",
        "the script sets it to 1: a rank that fails ends the others, which would wait for it for ever",
    ),
    ("wait", "the script sets it to 0: rank 0 may still save when the others have ended"),
    ("export", "the script sets it to ALL, which the ranks need; use --env"),
    ("cpus-per-task", "use slurmddp's own --cpus-per-task"),
    ("open-mode output error", _RANK_OUTPUT),
    ("input", "the ranks read nothing from standard input; give COMMAND a file"),
    ("ntasks ntasks-per-node tasks-per-node ntasks-per-gpu nodes nodefile nodelist exclude relative", _TASKS),
    ("label", "`slurmddp logs` shows the rank of each line, and reads lines without a label"),
    ("multi-prog", "all ranks run COMMAND, which finds its rank in RANK"),
    ("jobid", "the ranks run in the job of the script"),
    ("het-group", "the ranks are tasks of one step in one kind of nodes, not of a heterogeneous job"),
    ("gpu-bind gpus-per-task", _EACH_GPU),
    (
        "container container-image container-mounts container-workdir container-env",
        "use --container, --container-mount",
    ),
)
_OWNED_BY_SCRIPT: Final = {name: reason for names, reason in _SRUN_ENTRIES for name in names.split()}
"""Options of srun that the script sets itself, or that its ranks cannot have."""
_NUMBERED: Final = "the ranks are numbered node by node (block); leave it out, and choose the nodes by --nodelist"


def key_of(option: str) -> str:
    """Return the key in FOREIGN of an option as it was typed; torchrun and accelerate also take `_` for a hyphen."""
    return option.lstrip("-").replace("_", "-")


def advise(option: str, known: Container[str]) -> str:
    """Return what to type instead of an option; empty if it is not in the table, or if `known` lacks that option."""
    key = key_of(option)
    found = FOREIGN.get(key)
    if found and (found.instead.split()[0] in known or not found.instead.startswith("--")):
        return found.advice.format(option=option)
    return f"use --sbatch {key}" if key in SWITCHES_OF_SBATCH and "--sbatch" in known else ""


def refuse_sbatch(key: str, value: str) -> str:
    """Return why `--sbatch` cannot have an option, or an abbreviation of it; empty if it can."""
    for name in OF_SBATCH:
        if name != key and name.replace("-", "") == key.replace("-", ""):
            return f"sbatch has no --{key}; did you mean {name}?"
    if key == "gres" and "gpu" in value:
        return FOREIGN[key].advice
    if _is_not_by_node(key, value):
        return _NUMBERED
    return next((found.advice for name, found in FOREIGN.items() if found.of_sbatch and name.startswith(key)), "")


def refuse_srun(key: str, value: str) -> str:
    """Return why `--srun` cannot have an option, or an abbreviation of it; empty if it can."""
    if _is_not_by_node(key, value):
        return _NUMBERED
    return next((reason for name, reason in _OWNED_BY_SCRIPT.items() if name.startswith(key)), "")


def _is_not_by_node(key: str, value: str) -> bool:
    """Return whether an option spreads neighbouring ranks over the nodes: arbitrary, cyclic, plane."""
    return len(key) > 1 and "distribution".startswith(key) and value.lower().startswith(("a", "c", "pl"))

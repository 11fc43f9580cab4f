"""JobSpec: one job, as a frozen value that is checked on construction. No I/O.

Every job option is declared here once. The command line, the environment, the job file and the documentation are made
from the annotations (slurmddp.config.option_types).
"""

import re
import shlex
from typing import Annotated, Any, Final, Literal

import msgspec

from slurmddp import variables
from slurmddp.config.batch_script import BatchScript
from slurmddp.config.command import NO_PYTHON, Command, parse, replace_arguments
from slurmddp.config.configuration_files import RUNS_DIR
from slurmddp.config.container import Runtime, complete_mount, runtime_of
from slurmddp.config.foreign_options import refuse_sbatch, refuse_srun
from slurmddp.config.option_types import Count, Field, Option, Tasks, fields_of, whole_text
from slurmddp.config.worker_options import Many, WorkerOptions, arguments
from slurmddp.errors import UsageError
from slurmddp.slurm.environment import is_of_a_job
from slurmddp.slurm.hostlist import expand
from slurmddp.slurm.values import parse_duration
from slurmddp.supervisor_options import DEFAULTS
from slurmddp.text import MASK, quote_value

Text = str | None
Texts = tuple[str, ...]
Gpus = Annotated[
    str, whole_text("([A-Za-z0-9_.-]+:)?[1-9][0-9]{0,3}", "a count from 1 to 9999, or type:count as in a100:8")
]
SlurmTime = Annotated[
    str,
    whole_text(
        "[0-9]+(:[0-5]?[0-9]){0,2}|[0-9]+-[0-9]+(:[0-5]?[0-9]){0,2}|(?i:unlimited|infinite)",
        "a Slurm time (minutes, MM:SS, HH:MM:SS, D-HH, D-HH:MM or D-HH:MM:SS), as in 1:30:00",
    ),
]
Memory = Annotated[
    str, whole_text("[0-9]+[KMGT]?", "a size (whole megabytes, or with K, M, G or T behind it), as in 16G")
]
_JOB = r"[0-9]+(_([0-9]+|\*))?(\+[0-9]+)?"
_JOBS = rf"((?i:after(any|burstbuffer|corr|notok|ok)?):)?{_JOB}(:{_JOB})*|(?i:singleton)"
Dependency = Annotated[
    str,
    whole_text(
        f"({_JOBS})([,?]({_JOBS}))*",
        "a list of jobs in sbatch's form, as in afterok:17; --after and --after-ok take the name of a run, too",
    ),
]
_FIRST_PORT = 1024
_LAST_PORT = 65535
_PORTS = f"FIRST-LAST with {_FIRST_PORT} <= FIRST < LAST <= {_LAST_PORT}"
PortRange = Annotated[str, whole_text("[0-9]{1,5}-[0-9]{1,5}", f"{_PORTS}, as in 20000-29999")]
HeadAddress = Annotated[
    str, whole_text(r"[A-Za-z0-9.-]*\{host\}[A-Za-z0-9.-]*", "a host name with {host} in it, as in {host}.ib")
]
Lead = Annotated[int, msgspec.Meta(ge=1, le=65535, description="whole seconds, 1 to 65535")]
Spares = Annotated[int, msgspec.Meta(ge=0, le=9999, description="a whole number, 0 to 9999")]
HangTimeout = Annotated[
    str, whole_text("auto|[1-9][0-9]{0,6}[smh]?", "auto, or seconds, or a number with s, m or h, as in 10m")
]

NAME_RULE: Final = (
    "letters, digits and . _ - after a first letter or digit, at most 64, and not the id of a job, as 17 or 17_3"
)
NAME: Final = r"(?![0-9]+(_[0-9]+)?\Z)[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
_VARIABLE = r"[A-Za-z_][A-Za-z0-9_]*"
_LONG_OPTION = r"[a-z][a-z0-9-]+"

EXPEDITE: Final = "requeue=expedite"
"""The one value of sbatch's `--requeue`, from 25.11 on."""

_NOT_OF_SBATCH = ("sbatch", "env", "profile", "wrap")
"""Our options that sbatch does not have, or that mean something else to it."""

_BASH_VARIABLES = frozenset({"BASHOPTS", "BASH_VERSINFO", "EUID", "IFS", "PPID", "SHELLOPTS", "UID"})

_LONGEST_TIME_S = 2**31 - 1

SETUP: Final = ("module", "conda", "venv", "setup_file", "setup")
"""The fields that set up the ranks' environment, in the order of those whose order is not known."""

_IGNORE_SIGNALS: Final = ("sh", "-c", 'trap "" TERM USR1 USR2; exec "$@"', "sh")
"""A shell that runs the rank's Python as its child would die of a stop signal; Python sets handlers of its own."""

CHECKPOINT_WORD: Final = "{checkpoint}"
"""Stands in --resume-args for the newest checkpoint."""

JOB_WORD: Final = re.compile(r"\{SLURM_[A-Z0-9_]+\}")
"""Stands in COMMAND, --env and --venv for the value that this variable has in the job."""
VENV_VARIABLE: Final = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})", re.ASCII)
"""The same in --venv, where it may be any variable."""
_LITERAL: Final = re.compile(r"\$\{?(SLURM_[A-Z0-9_]+)\}?")


class JobSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One job: the options of sbatch, the launcher of the ranks, and the program of each rank."""

    nodes: Annotated[Count, Option("Number of nodes.", short="-N", group="Resources")] = 1
    spares: Annotated[
        Spares, Option("Nodes beyond --nodes that wait in the allocation, to replace a node that is lost at once.")
    ] = DEFAULTS.spares
    gpus_per_node: Annotated[
        Gpus | None,
        Option(
            "GPUs on each node, as a count or type:count [default: all of a node's].",
            metavar="[TYPE:]N",
            variable="SBATCH_GPUS_PER_NODE",
        ),
    ] = None
    ntasks_per_node: Annotated[Tasks | None, Option("Ranks on each node [default: its GPUs, or 1].")] = None
    cpus_per_task: Annotated[Count | None, Option("CPUs for each rank [default: its share].", short="-c")] = None
    mem: Annotated[
        Memory | None,
        Option(
            "Memory of each node: megabytes, or with K, M, G, T [default: Slurm's, or the share of the GPUs].",
            metavar="SIZE",
            variable="SBATCH_MEM_PER_NODE",
        ),
    ] = None
    time: Annotated[
        SlurmTime | None,
        Option(
            "Time limit: minutes, HH:MM:SS or D-HH:MM:SS [default: the partition's].",
            short="-t",
            variable="SBATCH_TIMELIMIT",
        ),
    ] = None
    partition: Annotated[
        Text, Option("Partition [default: the cluster's].", short="-p", variable="SBATCH_PARTITION", group="Queue")
    ] = None
    account: Annotated[Text, Option("Account to charge [default: yours].", short="-A", variable="SBATCH_ACCOUNT")] = (
        None
    )
    qos: Annotated[Text, Option("Quality of service [default: yours].", short="-q", variable="SBATCH_QOS")] = None
    constraint: Annotated[Text, Option("Node features wanted.", short="-C", variable="SBATCH_CONSTRAINT")] = None
    reservation: Annotated[Text, Option("Reservation to use.", variable="SBATCH_RESERVATION")] = None
    nodelist: Annotated[Text, Option("Nodes to use, as in n[1-4].", short="-w")] = None
    exclude: Annotated[Text, Option("Nodes to leave out.", short="-x")] = None
    avoid: Annotated[bool, Option("Whether bad nodes are left out: `slurmddp nodes` shows them.")] = True
    job_name: Annotated[
        str,
        Option(
            "Name of the job and of its run's folder [default: the name of the job file, script or task].",
            short="-J",
            also="name",
        ),
    ]
    dependency: Annotated[Dependency | None, Option("Jobs to wait for, in sbatch's form: afterok:17.", short="-d")] = (
        None
    )
    hold: Annotated[bool, Option("Submit held; scontrol release starts it.")] = False
    sbatch: Annotated[Texts, Option("Another option of sbatch, by its long name.", metavar="KEY[=VALUE]")] = ()
    module: Annotated[Texts, Option("Environment module to load.", group="Environment of the ranks")] = ()
    conda: Annotated[Text, Option("Conda environment to activate.", metavar="ENV")] = None
    venv: Annotated[
        Text, Option("Virtual environment to activate; $NAME in it is a variable of the job.", metavar="DIR")
    ] = None
    setup: Annotated[Texts, Option("A shell line to run before the ranks start.", metavar="LINE")] = ()
    setup_file: Annotated[Text, Option("Shell lines to run before the ranks start, from a file.", metavar="FILE")] = (
        None
    )
    env: Annotated[
        Texts,
        Option(
            "Environment variable of the ranks; without VALUE it is passed on and not written to a file.",
            metavar="KEY[=VALUE]",
        ),
    ] = ()
    python: Annotated[
        Text,
        Option(
            "Python of the ranks [default: the one that is found after the set-up lines, your own before them].",
            metavar="EXE",
        ),
    ] = None
    supervisor_python: Annotated[
        Text,
        Option("Python of the supervisor, which needs slurmddp [default: the one that runs slurmddp].", metavar="EXE"),
    ] = None
    container: Annotated[
        Text, Option("Container image of the ranks; --python is then the Python inside it.", metavar="IMAGE")
    ] = None
    container_runtime: Annotated[
        Runtime | None,
        Option("Program that runs the image [default: by its name; apptainer for a path, .sif and docker://]."),
    ] = None
    container_mount: Annotated[
        Texts, Option("A folder to mount besides the run's folder and the working directory.", metavar="SRC[:DST][:ro]")
    ] = ()
    snapshot: Annotated[bool, Option("Run a copy of the code, made when the job is submitted.")] = False
    launcher: Annotated[
        Literal["srun", "fork", "torchrun", "manual"],
        Option(
            "srun: one task a rank. fork: one task a node imports torch once and forks its ranks. torchrun: one "
            "task a node is torchrun. manual: `render` prints what to type on each node.",
            group="Launch",
        ),
    ] = "srun"
    launch_line: Annotated[
        Count | None, Option("Line of the statement that starts the ranks, in a batch script of your own.", metavar="N")
    ] = None
    srun: Annotated[
        Texts, Option("Another option of srun for the ranks, by its long name, as in mpi=pmi2.", metavar="KEY[=VALUE]")
    ] = ()
    wrap: Annotated[
        Text, Option("Words before the Python of each rank, as in 'numactl --interleave=all'.", metavar="WORDS")
    ] = None
    before_ranks: Annotated[
        Texts,
        Option(
            "A shell line to run once on each node, before each start of the ranks; its failure ends the job.",
            metavar="LINE",
        ),
    ] = ()
    after_ranks: Annotated[
        Texts, Option("A shell line to run once on each node, after each end of the ranks.", metavar="LINE")
    ] = ()
    no_python: Annotated[bool, Option("COMMAND is an executable, not a Python script.")] = False
    rendezvous: Annotated[
        Literal["tcp", "file"],
        Option("How the group forms: at a port of the first node, or by a file in the run's folder.", also="init"),
    ] = "tcp"
    port_range: Annotated[PortRange, Option("Range for the ranks' two ports.", metavar="FIRST-LAST")] = (
        DEFAULTS.port_range
    )
    head_address: Annotated[
        HeadAddress,
        Option("Name by which the ranks reach the first node, {host}; as in {host}.ib.cluster.", metavar="TEXT"),
    ] = DEFAULTS.head_address
    interface: Annotated[
        Text, Option("Network interface of NCCL and gloo, as in ib0 [default: their own choice].", metavar="NAME")
    ] = None
    preflight: Annotated[
        bool, Option("Whether nodes and ranks are checked, in less than a second, before COMMAND starts.")
    ] = True
    tracker_ids: Annotated[bool, Option("Whether wandb and MLflow go on with one run of theirs over all attempts.")] = (
        True
    )
    template: Annotated[
        Text,
        Option(
            "Your own Jinja template. It extends base.sbatch.j2, whose blocks are header, folder, output, setup, "
            "environment, launch, finish; this one adds a line before the ranks start: {% extends "
            "'base.sbatch.j2' %}{% block setup %}{{ super() }}echo hello{% endblock %}",
            metavar="FILE",
        ),
    ] = None
    requeue: Annotated[bool, Option("Whether Slurm may requeue the job.", group="Requeue and checkpoints")] = True
    signal_lead: Annotated[
        Lead | None,
        Option(
            f"Stop signal before the time limit [default: {DEFAULTS.signal_lead}, or a quarter of a short limit].",
            metavar="SECONDS",
        ),
    ] = None
    max_restarts: Annotated[Many, Option("Restarts of the ranks in a row without a new checkpoint.")] = (
        DEFAULTS.max_restarts
    )
    max_requeues: Annotated[
        Many | None, Option("Requeues by the job itself [default: any number while checkpoints advance].")
    ] = DEFAULTS.max_requeues
    notify: Annotated[
        Text,
        Option(
            "Address (JSON by POST, as for Slack) or command (JSON on standard input) that is told when the job "
            "hangs, fails, is requeued or ends.",
            metavar="URL|COMMAND",
        ),
    ] = None
    hang_timeout: Annotated[
        HangTimeout | None,
        Option(
            "End ranks that hang, and start them again, after this time without progress; auto: by the longest step "
            "[default: warn only].",
            metavar="DURATION|auto",
        ),
    ] = None
    after_signal_exit_0: Annotated[
        Literal["requeue", "done"],
        Option("What an end with status 0 means after a stop signal that COMMAND has handled by itself."),
    ] = "requeue"
    resume_args: Annotated[
        Text,
        Option(
            "Arguments of COMMAND from its second start on; they replace those of the same names. {checkpoint} is "
            "the newest match of --checkpoints.",
            metavar="ARGUMENTS",
        ),
    ] = None
    checkpoints: Annotated[
        Text, Option("Checkpoints that COMMAND writes by its own means, as in 'out/*.pt'.", metavar="GLOB")
    ] = None
    recipe: Annotated[
        bool, Option("Whether --resume-args and --checkpoints of a well-known script are set by themselves.")
    ] = True
    reset: Annotated[bool, Option("Start over: move the run's checkpoints to another folder, once.")] = False
    steps: Annotated[
        Count | None, Option("End Checkpointer's loop after N steps, and record their times.", metavar="N")
    ] = None
    runs_dir: Annotated[str, Option("Folder with the folders of the runs.", metavar="DIR", group="Files")] = RUNS_DIR
    profile: Annotated[Text, Option("Use the tables [profile.NAME] of the configuration files.", metavar="NAME")] = None

    command: tuple[str, ...] = ()
    """The program of each rank: a script and its arguments, or `-m` and a module; empty for the bundled worker."""
    worker: WorkerOptions = WorkerOptions()
    """The options of the bundled worker; unused with a command."""
    setup_order: Texts = ()
    """The fields of SETUP in the order in which they were given, each as often as it has values."""
    avoided: Texts = ()
    """The nodes that are left out besides `exclude`, because something speaks against them."""
    expedite: bool = False
    """Whether the cluster expedites requeues, so that the job asks for it."""
    script: BatchScript | None = None
    """The batch script of the user's own that the command names; its arguments follow in the command."""

    def __post_init__(self) -> None:
        """Check what the types cannot check. Raises UsageError."""
        if not re.fullmatch(NAME, self.job_name):
            raise UsageError(f"job name {quote_value(self.job_name)} is not allowed: {NAME_RULE}; choose with --name")
        for field in JOB_FIELDS.values():
            _check_text(field, getattr(self, field.name))
        self._check_lists()
        for key, hosts in (("nodelist", self.nodelist), ("exclude", self.exclude)):
            if hosts and "/" not in hosts:  # else it is a file with the list
                expand(",".join(re.split(r"[\s,]+", hosts.strip(", "))), option=f"--{key}")
        if not _FIRST_PORT <= self.ports[0] < self.ports[1] <= _LAST_PORT:
            raise UsageError(f"--port-range: {quote_value(self.port_range)} is not {_PORTS}")
        self._check_time()
        self._check_launch()
        self._check_resume()
        self._check_environment()

    def _check_lists(self) -> None:
        """Check each item of the options that may be given several times."""
        for program in ("sbatch", "srun"):
            for item in getattr(self, program):
                _check_option(program, item)
        for key in ("setup", "before-ranks", "after-ranks"):
            for line in getattr(self, JOB_FIELDS[key].name):
                check_line_end(line, f"--{key}: {quote_value(line)}")
        for item in self.env:
            _check_variable(item)

    def _check_time(self) -> None:
        """Check the time limit, and that the stop signal comes within it."""
        if self.time and (re.search(r"[0-9]{10}", self.time) or (self.time_s or 0) > _LONGEST_TIME_S):
            most = f"{_LONGEST_TIME_S // 86400} days"
            raise UsageError(f"--time: {quote_value(self.time)} is too long; give at most {most}, or UNLIMITED")
        if self.signal_lead is None or self.time_s is None:
            return
        if self.signal_lead + DEFAULTS.signal_margin >= self.time_s:
            raise UsageError(
                f"--signal-lead {self.signal_lead} leaves nothing of the time limit {self.time} ({self.time_s} s); "
                f"less than {self.time_s - DEFAULTS.signal_margin} is allowed, or leave it out"
                if self.time_s > DEFAULTS.signal_margin
                else f"--signal-lead is not possible with a time limit of {self.time_s} s; leave it out"
            )

    def _check_launch(self) -> None:
        if self.no_python and not self.command:
            raise UsageError("--no-python: COMMAND is missing; name an executable, as in: --no-python ./train --lr 0.1")
        self._check_wrap()
        mpi = next((item for item in self.srun if re.match("-*mpi=(?!none)", item)), None)
        if mpi and self.launcher in ("fork", "torchrun"):
            raise UsageError(
                f"--srun {mpi} with --launcher {self.launcher}, which is one task of MPI on each node, not one for "
                "each rank; give --launcher srun"
            )
        if self.launcher != "manual":
            return
        if self.rendezvous == "file":
            raise UsageError(
                "--rendezvous file with --launcher manual: nothing makes a new file for each attempt; leave it out"
            )
        self._check_absent(
            ("reset", "template", "snapshot", "resume-args", "srun", "before-ranks", "after-ranks", "spares"),
            "--launcher manual, which makes no batch script; leave it out",
        )

    def _check_wrap(self) -> None:
        if self.wrap is None:
            return
        _split_words("wrap", self.wrap)
        if not self.command:
            raise UsageError(
                "--wrap: COMMAND is missing, and --wrap has words before the Python of each rank, as in: --wrap "
                f"'numactl --interleave=all' train.py; for sbatch's --wrap, type without --wrap: {self.wrap}"
            )
        if self.launcher == "fork":
            raise UsageError(
                "--wrap with --launcher fork, whose ranks are forked from one Python; give --launcher srun"
            )

    def _check_absent(self, keys: tuple[str, ...], reason: str) -> None:
        """Raise UsageError for options that the one at the beginning of the reason excludes."""
        for key in keys:
            if getattr(self, JOB_FIELDS[key].name):
                raise UsageError(f"--{key} with {reason}")

    def _check_resume(self) -> None:
        if self.resume_args is None:
            return
        if not self.command:
            raise UsageError("--resume-args without COMMAND: the bundled worker resumes by itself; leave it out")
        _split_words("resume-args", self.resume_args)
        if other := re.search(r"(?<![{$]){(?!checkpoint}|SLURM_)[A-Za-z_]\w*}", self.resume_args):
            raise UsageError(f"--resume-args: {other[0]} is not known; {CHECKPOINT_WORD} is")
        if CHECKPOINT_WORD in self.resume_args and not self.checkpoints:
            raise UsageError(f"--resume-args: {CHECKPOINT_WORD} needs --checkpoints, as in --checkpoints 'out/*.pt'")

    def _check_environment(self) -> None:
        """Check the options of the container."""
        for mount in self.container_mount:
            complete_mount(mount)  # which refuses what is no mount
        if self.container:
            self._check_absent(
                ("venv", "conda"), "--container, which brings a Python of its own; leave one of them out"
            )
        if self.launcher == "manual" and self.runtime == "pyxis":
            raise UsageError("--launcher manual with pyxis, which is part of srun; give --container-runtime apptainer")

    @property
    def literal_variables(self) -> tuple[str, ...]:
        """The names of Slurm's variables that COMMAND and --env have as `$SLURM_NAME`, which stays as it is."""
        return tuple(dict.fromkeys(_LITERAL.findall("\n".join((*self.command, *self.env)))))

    @property
    def parsed_command(self) -> Command:
        """COMMAND as a value."""
        return parse(self.command, executable=self.no_python)

    @property
    def program(self) -> tuple[str, ...]:
        """The words after `python -m slurmddp.worker`."""
        if not self.command:
            return tuple(arguments(self.worker))
        return (NO_PYTHON, *self.command) if self.no_python else self.command

    @property
    def resumed_program(self) -> tuple[str, ...]:
        """The same words from the second start of the ranks on; empty where they do not differ."""
        if not self.resume_args:
            return ()
        command = replace_arguments(self.command, tuple(shlex.split(self.resume_args)))
        return (NO_PYTHON, *command) if self.no_python else command

    @property
    def srun_words(self) -> tuple[str, ...]:
        """The further options of srun, as its command line has them."""
        return tuple(f"--{item.lstrip('-')}" for item in self.srun)

    @property
    def wrap_words(self) -> tuple[str, ...]:
        """The words before the Python of each rank; with them, those that protect a wrapper from the stop signals."""
        return (*_IGNORE_SIGNALS, *_split_words("wrap", self.wrap)) if self.wrap else ()

    @property
    def runtime(self) -> Runtime | None:
        """The program that runs the container; None without a container."""
        return (self.container_runtime or runtime_of(self.container)) if self.container else None

    @property
    def setup_steps(self) -> tuple[tuple[str, str], ...]:
        """What sets up the ranks' environment, in its order: a field of SETUP, and one of its values."""
        given = {name: getattr(self, name) or () for name in SETUP}
        left = {name: [value] if isinstance(value, str) else [*value] for name, value in given.items()}
        order = (*self.setup_order, *(name for name in SETUP for _ in left[name]))
        return tuple((name, left[name].pop(0)) for name in order if left[name])

    @property
    def is_venv_known(self) -> bool:
        """Whether there is a virtual environment whose path does not depend on variables of the job."""
        return bool(self.venv) and not JOB_WORD.search(self.venv or "") and not VENV_VARIABLE.search(self.venv or "")

    @property
    def has_setup(self) -> bool:
        """Whether the environment of the ranks is made on the nodes, besides a virtual environment."""
        return bool(self.conda or self.module or self.setup or self.setup_file)

    @property
    def allocated_nodes(self) -> int:
        """Nodes of the allocation: those that train, and the spares."""
        return self.nodes + self.spares

    @property
    def tasks_per_node(self) -> int:
        """Ranks on each node."""
        return self.ntasks_per_node or self.gpus or 1

    @property
    def gpus(self) -> int:
        """GPUs on each node; 0 without GPUs."""
        return int(self.gpus_per_node.rpartition(":")[2]) if self.gpus_per_node else 0

    @property
    def gpu_type(self) -> str:
        """The type of the GPUs; empty for any type."""
        return (self.gpus_per_node or "").rpartition(":")[0]

    @property
    def world_size(self) -> int:
        """Ranks of the whole job."""
        return self.nodes * self.tasks_per_node

    @property
    def time_s(self) -> int | None:
        """The time limit in seconds; None for the partition's limit, or no limit, which is 0 for sbatch, too."""
        return (parse_duration(self.time) or None) if self.time else None

    @property
    def lead_s(self) -> int:
        """Seconds between the stop signal to the ranks and the time limit."""
        if self.signal_lead:
            return self.signal_lead
        if self.script and self.script.signal_lead is not None:
            return self.script.signal_lead
        return DEFAULTS.signal_lead if self.time_s is None else max(1, min(DEFAULTS.signal_lead, self.time_s // 4))

    @property
    def margin_s(self) -> int:
        """Seconds that the job must have before the stop signal."""
        usual = DEFAULTS.signal_margin
        return usual if self.time_s is None else max(0, min(usual, self.time_s - self.lead_s))

    @property
    def slurm_name(self) -> str:
        """The name of the job in Slurm, which is also that of its run, unless a script names its job."""
        named = dict(self.script.header).get("job-name") if self.script else self.job_name
        return named or (self.script.job_name if self.script else self.job_name)

    @property
    def is_array(self) -> bool:
        """Whether the job is an array of the script's own."""
        return self.script is not None and self.script.get("array") is not None

    @property
    def ports(self) -> tuple[int, int]:
        """First and last port of the range."""
        return DEFAULTS._replace(port_range=self.port_range).ports

    @property
    def variables(self) -> tuple[str, ...]:
        """Environment of the ranks: KEY=VALUE, or KEY to pass it on; a later item beats an earlier one."""
        names = ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME") if self.interface else ()
        steps = (f"{variables.STEP_LIMIT}={self.steps}",) if self.steps else ()
        trackers = () if self.tracker_ids else (f"{variables.SKIP_TRACKER_IDS}=1",)
        complete = (f"{variables.EXIT_0_AFTER_SIGNAL}=done",) if self.after_signal_exit_0 == "done" else ()
        return (*(f"{name}={self.interface}" for name in names), *steps, *trackers, *complete, *self.env)

    @property
    def is_expedited(self) -> bool:
        """Whether Slurm is to start the job at once, and before all others, when it has requeued it."""
        return self.requeue and (self.expedite or any(item.lstrip("-") == EXPEDITE for item in self.sbatch))

    @property
    def header(self) -> tuple[tuple[str, str | None], ...]:
        """The options of sbatch in the order of the script, each with its value, None for a switch."""
        asked = {key: getattr(self, JOB_FIELDS[key].name) for key in _HEADER} | {"ntasks-per-node": self.tasks_per_node}
        asked["nodes"] = self.allocated_nodes
        asked["exclude"] = ",".join(filter(None, (self.exclude, *self.avoided))) or None
        options: list[tuple[str, str | None]] = [(key, str(value)) for key, value in asked.items() if value is not None]
        options += [("hold", None)] if self.hold else []
        options += [("open-mode", "append")]
        options += [("no-kill", None)] if self.spares else []
        options += [("requeue", "expedite" if self.is_expedited else None) if self.requeue else ("no-requeue", None)]
        options += [("signal", f"USR2@{self.lead_s}")]
        for item in self.sbatch:
            if item.lstrip("-") == EXPEDITE:
                continue
            key, equals, value = item.lstrip("-").partition("=")
            options.append((key, value if equals else None))
        return tuple(options)


_HEADER = (
    *("job-name", "nodes", "ntasks-per-node", "gpus-per-node", "cpus-per-task", "mem", "time", "partition", "account"),
    *("qos", "constraint", "reservation", "nodelist", "exclude", "dependency"),
)
"""The options with a value that the script's header has, in its order."""

JOB_FIELDS: Final = fields_of(JobSpec)
"""The job options, by key."""
ALIASES: Final = {field.option.also: key for key, field in JOB_FIELDS.items() if field.option.also}
"""The key of an option, by its second name."""


def for_torchrun(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return words of a command for torchrun, which expands `$` (torch.distributed.elastic.utils.macros)."""
    return tuple(word.replace("$", "$$") for word in words)


def _check_text(field: Field, value: Any) -> None:
    for text in value if isinstance(value, tuple) else (value,):
        if not isinstance(text, str):
            continue
        if not text:
            raise UsageError(f"--{field.key}: an empty text is not allowed; leave the option out")
        allowed = "" if field.key in (*_HEADER, "sbatch", "srun") else "\t"
        if field.key != "env" and not all(char.isprintable() or char in allowed for char in text):
            given = f"--{field.key}: {quote_value(text)}"
            raise UsageError(f"{given} has an unprintable character; leave that character out")


def _split_words(key: str, text: str) -> tuple[str, ...]:
    """Split the text of an option as a shell would. Raises UsageError for a quote that is not closed."""
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise UsageError(f"--{key}: {quote_value(text)}: {error}") from error


def _check_option(program: str, item: str) -> None:
    """Check an option that is passed on to one of Slurm's programs. Raises UsageError."""
    key, equals, value = item.lstrip("-").partition("=")
    given = f"--{program}: {quote_value(item)}"
    if not re.fullmatch(_LONG_OPTION, key):
        example = {"sbatch": "exclusive", "srun": "mpi=pmi2"}[program]
        raise UsageError(f"{given} is not KEY or KEY=VALUE with {program}'s long name, as in {example}")
    if equals and not value:
        raise UsageError(f"{given} has an empty value; write {key} alone, or a value")
    own = next((name for name in JOB_FIELDS if name.startswith(key) and name not in _NOT_OF_SBATCH), None)
    if item.lstrip("-") == EXPEDITE and program == "sbatch":
        return
    if own and program == "sbatch":
        raise UsageError(f"{given}: slurmddp has an option for this, --{own}")
    if hint := refuse_sbatch(key, value) if program == "sbatch" else refuse_srun(key, value):
        raise UsageError(f"{given}: {hint}")


def check_line_end(lines: str, given: str) -> None:
    """Raise UsageError for shell lines that would join the next line to the last one; `given` names them."""
    if (len(lines) - len(lines.rstrip("\\"))) % 2:
        raise UsageError(f"{given} ends in a backslash, which joins it to the next line; remove it")


def _check_variable(item: str) -> None:
    key, equals, value = item.partition("=")
    if not re.fullmatch(_VARIABLE, key):
        given = f"{key}={MASK}" if equals else key
        raise UsageError(
            f"--env: {quote_value(given)} is not KEY or KEY=VALUE; a KEY has letters, digits and _, no digit first"
        )
    if key in _BASH_VARIABLES:
        raise UsageError(f"--env: {key} belongs to the shell that starts the ranks; choose another name")
    if is_of_a_job(key):
        raise UsageError(f"--env: {key} belongs to Slurm or to slurmddp and is set for each rank; choose another name")
    if "\0" in value:
        raise UsageError(f"--env: the value of {key} has a NUL character, which is not allowed in the environment")
    if value != value.encode("utf-8", "replace").decode():
        raise UsageError(f"--env: the value of {key} is not UTF-8 text; give {key} alone to pass it on unchanged")

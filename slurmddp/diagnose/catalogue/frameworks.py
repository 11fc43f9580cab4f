"""Failures of frameworks and launchers: FSDP, DeepSpeed, Lightning, ray, MPI. Data only."""

from functools import partial
from typing import Final

from slurmddp.diagnose.rule_types import Rule, line_rule

_misuse = partial(Rule, key="framework-settings")
_fsdp = partial(Rule, key="fsdp-model")
_symptom = partial(Rule, again=None, role="symptom", sure="likely")
_mpi = partial(_symptom, key="mpi-failed", place="line")

RULES: Final = (
    _fsdp(
        pattern=r"Must flatten tensors with uniform (?P<what>\S+) but got (?P<kinds>.+)",
        example="ValueError: Must flatten tensors with uniform dtype but got torch.float16 and torch.float32",
        what="FSDP needs one {what} in each wrapped module, and found {kinds}",
        advice="convert the model to one dtype before you wrap it, or wrap with use_orig_params=True",
    ),
    _fsdp(
        pattern=r"An FSDP-managed module unexpectedly has parameters on (?P<device>\w+)",
        example="RuntimeError: An FSDP-managed module unexpectedly has parameters on cpu. Make sure to move the module "
        "to cuda:0 before training.",
        what="a module that FSDP manages is on the {device}",
        advice="pass device_id=torch.cuda.current_device() to FSDP, and move nothing after it is wrapped",
    ),
    _fsdp(
        pattern=r"Could not find the transformer layer class (?P<name>\S+)",
        example="Exception: Could not find the transformer layer class to wrap in the model.",
        what="the class of layers that FSDP should wrap is not in the model",
        advice="name a class that `print(model)` shows: fsdp_transformer_layer_cls_to_wrap",
    ),
    _misuse(
        pattern=r"train_batch_size is not equal to micro_batch_per_gpu \* gradient_acc_step \* world_size ?"
        r"(?P<numbers>.*)",
        example="AssertionError: Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu "
        "* gradient_acc_step * world_size 16 != 4 * 8 * 4",
        what="DeepSpeed's batch sizes do not fit the number of ranks: {numbers}",
        advice='write "auto" for train_batch_size, or leave one of the three out',
    ),
    _misuse(
        pattern=r"DeepSpeed config values that mismatch TrainingArguments",
        example="ValueError: Please correct the following DeepSpeed config values that mismatch TrainingArguments "
        "values:",
        what="DeepSpeed's file and the arguments of the Trainer contradict each other",
        advice='write "auto" in DeepSpeed\'s file for the values that the lines below name',
    ),
    _misuse(
        pattern=r"No slot '(?P<slot>\d+)' specified on host",
        example="ValueError: No slot '4' specified on host 'localhost'",
        what="DeepSpeed's launcher was told to use GPU {slot}, which the job does not have",
        advice="remove CUDA_VISIBLE_DEVICES and --include; Slurm numbers the GPUs of a job from 0",
    ),
    _misuse(
        pattern=r"You set `--ntasks=(?P<tasks>\d+)` in your SLURM bash script, but this variable is not supported",
        example="RuntimeError: You set `--ntasks=4` in your SLURM bash script, but this variable is not supported. "
        "HINT: Use `--ntasks-per-node=4` instead.",
        what="Lightning needs --ntasks-per-node and not --ntasks",
        advice="submit it with --nodes and --ntasks-per-node, one task for each GPU",
    ),
    _misuse(
        pattern=r"You set `(?:devices|num_nodes)=(?P<set>\d+)` in Lightning, but the number of (?:tasks per "
        r"node|nodes)",
        example="ValueError: You set `devices=2` in Lightning, but the number of tasks per node configured in SLURM "
        "`--ntasks-per-node=1` does not match. HINT: Set `devices=1`.",
        what="Lightning's devices or num_nodes differ from what the job asked of Slurm",
        advice="ask for as many --ntasks-per-node as devices, and for as many --nodes as num_nodes; start it with srun",
    ),
    _misuse(
        pattern=r"MisconfigurationException: (?P<why>.+)",
        example="lightning.fabric.utilities.exceptions.MisconfigurationException: No `training_step()` method defined. "
        "Lightning `Trainer` expects as minimum a `training_step()`, `train_dataloader()` and `configure_optimizers()`",
        what="Lightning was set up wrongly: {why}",
        advice="the message says what to change",
    ),
    Rule(
        key="other-ranks",
        pattern=r"used a DP world size of (?P<old>\d+) but the current world size is (?P<new>\d+)",
        example="The checkpoint being loaded used a DP world size of 4 but the current world size is 1.",
        what="the checkpoint was written by {old} ranks, and the job has {new}",
        advice="use as many ranks as before, or convert it with DeepSpeed's ds_to_universal.py",
        place="line",
    ),
    line_rule(
        key="ray-missing",
        pattern=r"Could not find any running Ray instance|(?:Failed|Unable) to connect to GCS|"
        r"The current node (?:timed out during startup|has not been updated within)",
        example="ConnectionError: Could not find any running Ray instance",
        what="the program looks for a ray cluster, and none runs in the job",
        advice="start `ray start --head` on the first node and `ray start --address` on the others by srun",
    ),
    _symptom(
        key="ray-actor-died",
        pattern=r"RayActorError: The actor died|ActorDiedError: |ActorUnavailableError: |WorkerCrashedError|"
        r"Worker exit type: SYSTEM_ERROR|A worker died or was killed (?:while executing|by an unexpected)|"
        r"NodeDiedError|LocalRayletDiedError|"
        r"The (?:node|raylet) .*(?:has been marked dead|missed too many heartbeats|is dead)",
        example="ray.exceptions.RayActorError: The actor died unexpectedly before finishing this task.",
        what="a process of ray died or was killed; this log does not say why",
        advice="read the log of that process in /tmp/ray/session_latest/logs on its node; often memory was full",
    ),
    line_rule(
        key="ray-resources",
        pattern=r"No available node types can fulfill resource request (?P<what>.*)|The number of required GPUs "
        r"exceeds",
        example="Error: No available node types can fulfill resource request {'GPU': 8.0}. Add suitable node types.",
        what="ray's nodes do not have what the program asks for: {what}",
        advice="`ray status` in the job prints what it has; ask Slurm for more GPUs or nodes, or the program for fewer",
    ),
    _mpi(
        pattern=r"Remote daemon: \S+ on node (?P<host>\S+)|Peer host: +(?P<peer>\S+)",
        example="  Remote daemon: [[43015,0],20] on node worker-19",
        what="MPI lost the connection to a process or a node: {host}{peer}",
        advice="read the output of that node: it or its process died first, or its network did",
    ),
    Rule(
        key="preempted",
        pattern=r"submitit .*Caught signal \w+ on (?P<node>\S+): this job is preempted",
        example="submitit WARNING (2022-10-05 08:32:02,390) - Caught signal SIGUSR2 on n1: this job is preempted.",
        what="the job was preempted, as submitit says on {node}",
        advice="submit it again if it was not requeued; submitit requeues a function that has checkpoint()",
        again=True,
        place="line",
        sure="likely",
    ),
    _mpi(
        pattern=r"\b(?P<daemon>orted|prted|hydra_\w+): (?:command )?not found|command not found: (?P<name>orted|prted)",
        example="bash: orted: command not found",
        what="mpirun finds no {daemon}{name} on a node: MPI is not installed there, or not in the PATH",
        advice="load the same MPI on all nodes (mpirun --prefix DIR), or start the ranks by srun",
    ),
    _mpi(
        pattern=r"(?:ORTE|PRTE|PMIx) (?:was unable to reliably start|has lost)|An? (?:ORTE|PRTE) daemon has "
        r"unexpectedly failed",
        example="ORTE was unable to reliably start one or more daemons.",
        what="mpirun could not start its daemons on the nodes, or lost them",
        advice="test `ssh NODE true` and the PATH there, or start the ranks by srun",
        general=True,
    ),
    _mpi(
        pattern=r"Abort\(-?\d+\) (?:on node \d+ )?\(rank (?P<rank>\d+) in comm \d+\): (?P<why>.+)|"
        r"Fatal error in P?(?P<call>MPI_\w+|internal_\w+): (?P<how>.+)|\*\*\* (?P<code>MPI_ERR_\w+: .+|An error "
        r"occurred in MPI_\w+)|"
        r"UCX +ERROR (?P<ucx>.+)|OFI \w+ (?:open|init)\w* failed(?P<ofi>.*)",
        example="Abort(1090831) on node 3 (rank 3 in comm 0): Fatal error in PMPI_Init: Other MPI error, error stack:",
        what="MPI failed: {why}{call} {how}{code}{ucx}{ofi}",
        advice="read the lines below it; `srun --mpi=list` prints the types that srun knows, `fi_info` the networks",
    ),
    _mpi(
        pattern=r"MPI_ABORT was invoked on rank (?P<rank>\d+).*|(?:MPI_INIT|PMIX_Init|MPI_Init\w*) has failed.*|"
        r"It looks like (?P<call>\w+) failed for some reason|PMI2_Init failed to intialize",
        example="MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD",
        what="an MPI program aborted, or could not start: {rank} {call}",
        advice="read what that rank printed before; `srun --mpi=list` prints the types that srun knows",
    ),
    _mpi(
        pattern=r"(?:PMIX|OPAL) ERROR: (?P<why>.+)",
        example="[node001:94018] PMIX ERROR: NOT-FOUND in file ptl_usock.c at line 175",
        what="the MPI library could not speak to its launcher: {why}",
        advice="`srun --mpi=list` prints the types; load the MPI that was built for this Slurm; torch needs --mpi=none",
        general=True,
    ),
    line_rule(
        key="mpi-root",
        pattern=r"mpi(?:run|exec) has detected an attempt to run as root",
        example="mpirun has detected an attempt to run as root.",
        what="Open MPI's mpirun does not start as root, as in many containers",
        advice="give it --allow-run-as-root, or start the ranks by srun",
    ),
    line_rule(
        key="mpi-slots",
        pattern=r"There are not enough slots available in the system to satisfy the (?P<count>\d+)",
        example="There are not enough slots available in the system to satisfy the 4 slots",
        what="mpirun should start {count} ranks, and the job has fewer tasks",
        advice="ask for --ntasks or --ntasks-per-node in the job: each task is a slot",
    ),
)

"""What sbatch, salloc and srun say when they refuse a job. Data only."""

import re
from functools import partial
from typing import Final

from slurmddp.diagnose.rule_types import Rule, line_rule

_PARTITIONS = "`sinfo -s` lists the partitions, `scontrol show partition NAME` who may use one"
_ASSOCIATIONS = "`sacctmgr show assoc user=$USER format=account,partition,qos` lists what you may use"
_PRINTED = {
    "sbatch": "sbatch: error: Batch job submission failed: ",
    "srun": "srun: error: Unable to allocate resources: ",
    "step": "srun: error: Unable to create step for job 4359715: ",
}
_JOB = r"(?:submission failed|allocate resources|allocate failed): "
_STEP = r"Unable to create step for job \d+: "

_options = partial(line_rule, key="submission-options")
_any_refusal = partial(
    line_rule, key="job-refused", what="Slurm refused the job: {why}", again=None, sure="likely", general=True
)
_script = partial(line_rule, key="batch-script")
_silent = partial(
    line_rule, key="controller-silent", what="Slurm's controller did not answer: {why}", again=True, sure="likely"
)


def _refused(key: str, why: str, command: str, advice: str) -> Rule:
    """Return the rule of a refusal with the text `why`, which `command` has printed in the example."""
    return line_rule(
        key=key,
        pattern=f"{_STEP if command == 'step' else _JOB}(?P<why>{re.escape(why)})",
        example=f"{_PRINTED[command]}{why}",
        what="Slurm refused the job: {why}",
        advice=advice,
    )


RULES: Final = (
    _refused(
        "account-refused",
        "Invalid account or account/partition combination specified",
        "sbatch",
        f"correct --account or --partition; {_ASSOCIATIONS}",
    ),
    _refused("qos-refused", "Invalid qos specification", "sbatch", f"correct --qos; {_ASSOCIATIONS}"),
    _refused("partition-refused", "Invalid partition name specified", "sbatch", f"correct --partition; {_PARTITIONS}"),
    _refused("partition-refused", "User's group not permitted to use this partition", "srun", _PARTITIONS),
    _refused(
        "partition-refused",
        "Required partition not available (inactive or drain)",
        "sbatch",
        f"choose another --partition, or wait until it is open; {_PARTITIONS}",
    ),
    line_rule(
        key="limit-refused",
        pattern=r"(?:sbatch|salloc|srun): error: (?:.*: )?(?P<limit>(?:QOS|Assoc|Max)(?:Max|Min|Grp|GRES|Jobs|Submit|"
        r"TRES|Cpu|Node|Mem|Wall)\w+)$",
        example="sbatch: error: QOSMaxSubmitJobPerUserLimit",
        what="the job exceeds a limit of its account or QOS: {limit}",
        advice="ask for less, or wait for your other jobs; `sacctmgr show qos` and `sacctmgr show assoc user=$USER` "
        "print the limits",
    ),
    _refused(
        "limit-refused",
        "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)",
        "srun",
        "ask for less time, fewer nodes or fewer jobs; `sacctmgr show qos` prints the limits",
    ),
    line_rule(
        key="limit-refused",
        pattern=rf"{_JOB}(?!Requested time limit is)(?P<why>Job(?:'s| has)? (?:QOS|violates|exceed).*|Requested time "
        rf"limit exceeds.*|"
        r".*[Ll]imit .*(?:reached|exceeded).*|.*exceed.* limit.*)",
        example="salloc: error: Job submit/allocate failed: Job violates accounting policy (job submit limit)",
        what="Slurm refused the job by a limit of its account, QOS or partition: {why}",
        advice=f"ask for less, or wait for your other jobs; {_ASSOCIATIONS}; `sacctmgr show qos` prints the limits",
    ),
    line_rule(
        key="nodes-refused",
        pattern=r"(?:sbatch|salloc|srun): error: Memory specification can not be satisfied",
        example="sbatch: error: Memory specification can not be satisfied",
        what="no node of the partition has the memory that the job asks for",
        advice="ask for less (--mem); `sinfo -o '%P %m'` prints each partition's memory in MB",
    ),
    _refused(
        "nodes-refused",
        "Requested node configuration is not available",
        "sbatch",
        "no node has so many CPUs, GPUs or so much memory; `sinfo -o '%P %D %c %m %G'` prints what nodes have",
    ),
    _refused(
        "nodes-refused",
        "Node count specification invalid",
        "sbatch",
        "correct --nodes: more or fewer than the partition allows; `scontrol show partition NAME` prints MaxNodes",
    ),
    _refused(
        "time-refused",
        "Requested time limit is invalid (missing or exceeds some limit)",
        "sbatch",
        "give --time, and less than the partition's limit; `sinfo -o '%P %l'` prints the limits",
    ),
    _refused(
        "gres-refused",
        "Invalid generic resource (gres) specification",
        "srun",
        "correct --gres or --gpus-per-node; `sinfo -o '%P %G'` prints the kinds and numbers of GPUs",
    ),
    _refused(
        "feature-refused",
        "Invalid feature specification",
        "sbatch",
        "correct --constraint; `sinfo -o '%P %f'` prints the features of the nodes",
    ),
    _refused(
        "reservation-refused",
        "Requested reservation is invalid",
        "sbatch",
        "correct --reservation; `scontrol show reservation` lists them",
    ),
    _refused(
        "dependency-refused",
        "Job dependency problem",
        "sbatch",
        "correct --dependency: the job that it names must exist and be on the same cluster",
    ),
    _refused(
        "array-refused",
        "Invalid job array specification",
        "sbatch",
        "use smaller numbers in --array; `scontrol show config | grep MaxArraySize` prints the limit",
    ),
    _refused(
        "access-refused",
        "Access/permission denied",
        "srun",
        "submit from a login node and not inside a job; ask the administrators whether your account is active",
    ),
    _refused(
        "step-refused",
        "More processors requested than permitted",
        "step",
        "ask in sbatch for the tasks and CPUs that the step uses (-N, --ntasks-per-node, -c)",
    ),
    _refused(
        "step-refused",
        "Memory required by task is not available",
        "step",
        "give srun less --mem than the job has, or `unset SLURM_MEM_PER_CPU SLURM_MEM_PER_NODE` before it",
    ),
    line_rule(
        key="step-refused",
        pattern=rf"{_STEP}(?!.*(?:Socket timed out|Zero Bytes|Unable to contact|Invalid job id|already "
        r"completing))(?P<why>.+)",
        example="srun: error: Unable to create step for job 16413634: Invalid generic resource (gres) specification",
        what="srun could not start the ranks: {why}",
        advice="ask in sbatch for what the step uses (-N, --ntasks-per-node, -c, --gpus-per-node)",
    ),
    line_rule(
        key="cpu-binding",
        pattern=r"CPU binding outside of job step allocation|Unable to satisfy cpu bind request",
        example="srun: error: CPU binding outside of job step allocation, allocated CPUs are: 0x200000.",
        what="srun cannot bind the ranks to CPUs, because the job has other CPUs than the binding asks for",
        advice="use `srun --cpu-bind=none`, and `unset SLURM_CPU_BIND` when you submit from inside a job",
    ),
    line_rule(
        key="mpi-type",
        pattern=r"(?i:invalid MPI type) '(?P<type>\w+)'|OMPI was not built with SLURM's PMI",
        example="srun: error: Invalid MPI type 'pmix_v3', --mpi=list for acceptable types",
        what="srun and the MPI library have no common way to start ranks",
        advice="`srun --mpi=list` prints the types; torch needs none of them: srun --mpi=none",
    ),
    line_rule(
        key="mpi-type",
        pattern=r"(?P<why>Couldn't find the specified plugin name for mpi/\S+|[Cc]annot (?:find|create) .*mpi/pmi\S*|"
        r"mpi/pmi\S+: (?:(?i:error)|value not properly|.*failed).*|PMI2?_Init.*(?:failed|returned).*)",
        example="srun: error: Couldn't find the specified plugin name for mpi/pmix_v5 looking at all files",
        what="srun and the MPI library found no common way to start ranks: {why}",
        advice="`srun --mpi=list` prints the types; load the MPI that was built for this Slurm; torch needs --mpi=none",
    ),
    line_rule(
        key="allocation-ended",
        pattern=r"(?:Unable to confirm allocation for job \d+|(?:create step for job) \d+): (?P<why>Invalid job id "
        r"specified|"
        r"Job/step already completing or completed|Job (?:has )?(?:is )?(?:no longer|expired|revoked).*)",
        example="srun: error: Unable to confirm allocation for job 17: Invalid job id specified",
        what="the allocation that srun uses has ended or does not exist: {why}",
        advice="`env | grep SLURM_JOB_ID` shows which it uses: unset it, and submit or allocate again",
    ),
    _silent(
        pattern=r"^(?!.*slurm_receive_msgs: ).*(?:error: |failed: |job \d+: )(?:\w+ )*?"
        r"(?P<why>Socket timed out on send/recv operation|Zero Bytes were transmitted or received)",
        example="sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
        advice="first check by squeue whether the job exists, then submit it again",
    ),
    _silent(
        pattern=r"(?P<why>Unable to contact slurm controller.*)|Unable to confirm allocation for job",
        example="srun: error: Unable to confirm allocation for job 17: Unable to contact slurm controller (connect "
        "failure)",
        advice="submit it again; if it fails again, ask the cluster's administrators",
    ),
    _script(
        pattern=r"This does not look like a batch script",
        example="sbatch: error: This does not look like a batch script.  The first",
        what="the first line of the batch script does not begin with #!",
        advice="write `#!/bin/bash` as its first line, with nothing before it",
    ),
    _script(
        pattern=r"Batch script (?:is empty|contains only whitespace)!",
        example="sbatch: error: Batch script is empty!",
        what="the batch script is empty",
        advice="look at the file: the variable that names it may be empty, or the disk may have been full",
    ),
    _script(
        pattern=r"Batch script contains DOS line breaks|\$'\\r': command not found|\^M: bad interpreter",
        example="sbatch: error: Batch script contains DOS line breaks (\\r\\n)",
        what="a script has the line breaks of Windows",
        advice="run `sed -i 's/\\r$//' SCRIPT`, or dos2unix",
    ),
    _script(
        pattern=r"(?:sbatch|salloc): error: Unable to open file (?P<path>.+)",
        example="sbatch: error: Unable to open file run_search_signal.sh",
        what="sbatch cannot open {path}",
        advice="correct the path of the script: it is relative to the working directory",
    ),
    _options(
        pattern=r"(?:sbatch|salloc|srun): (?:unrecognized|invalid|ambiguous) option (?P<option>.+)",
        example="sbatch: unrecognized option '--walltime=30'",
        what="Slurm does not know the option {option}",
        advice="`sbatch --help` lists the options; those of the program stand behind the script's name",
    ),
    _options(
        pattern=r"(?:sbatch|salloc|srun): error: (?P<why>Invalid (?:--[\w-]+ specification|directive found in batch "
        r"script: .*|(?:argument|node list|numeric value).*))",
        example="sbatch: error: Invalid --time specification",
        what="an option of the job is wrong: {why}",
        advice="correct it on the command line or in the #SBATCH lines; a time is minutes or D-HH:MM:SS",
    ),
    _any_refusal(
        pattern=r"(?:sbatch|salloc): error: (?!Batch job submission failed|.*\b(?:[Rr]etry|"
        r"(?i:warning)))\W*(?P<why>\w.+)",
        example="sbatch: error: !!! slurm_job_submit ERROR: submitted a job to a gpu32 partition, without specifying a "
        "GPU32 Account.",
        advice="these may be the words of the site's own filter: correct what they name (--account, --partition, "
        "--time)",
    ),
    _any_refusal(
        pattern=rf"{_JOB}(?P<why>.+)|(?:srun|sbatch|salloc): fatal: (?P<fatal>.+)",
        example="srun: error: Unable to allocate resources: Requested nodes are busy",
        what="Slurm refused the job: {why}{fatal}",
        advice=f"correct the option that it names; {_PARTITIONS}; {_ASSOCIATIONS}",
    ),
)

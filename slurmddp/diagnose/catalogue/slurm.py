"""Failures that Slurm and the batch script report. Data only."""

from functools import partial
from typing import Final

from slurmddp.diagnose.rule_types import line_rule

_transient = partial(line_rule, again=True)

_launch_failed = partial(line_rule, key="launch-failed", again=True)

RULES: Final = (
    _transient(
        key="time-limit",
        pattern=r"CANCELLED AT (?P<time>\S+) DUE TO TIME LIMIT",
        example="slurmstepd: error: *** JOB 17 ON n1 CANCELLED AT 2026-11-21T23:10:00 DUE TO TIME LIMIT ***",
        what="the time limit was reached",
        advice="submit it again: a program that saves checkpoints continues; `sbatch -t` gives it more time",
    ),
    _transient(
        key="node-lost",
        pattern=r"DUE TO NODE FAILURE|Node failure on (?P<host>\S+)|lost node\(s\) (?P<nodes>[\w., -]+)",
        example="slurmstepd: error: *** STEP 17.0 ON n1 CANCELLED AT 2026-11-21T23:10:00 DUE TO NODE FAILURE, SEE "
        "SLURMCTLD LOG FOR DETAILS ***",
        what="a node was lost: {host}{nodes}",
        advice="submit it again without that node: -x NODE",
    ),
    _transient(
        key="preempted",
        pattern=r"CANCELLED AT (?P<time>\S+) DUE TO PREEMPTION",
        example="slurmstepd: error: *** JOB 17 ON n1 CANCELLED AT 2026-11-21T23:10:00 DUE TO PREEMPTION ***",
        what="a job of higher priority took its nodes",
        advice="do nothing if Slurm requeues it; else submit it again",
    ),
    _transient(
        key="requeued",
        pattern=r"CANCELLED AT (?P<time>\S+) DUE TO JOB REQUEUE",
        example="slurmstepd: error: *** JOB 17 ON n1 CANCELLED AT 2026-11-21T23:10:00 DUE TO JOB REQUEUE ***",
        what="it was requeued: by a user, by preemption, or because a node failed",
        advice="do nothing: it starts again by itself",
        sure="likely",
    ),
    _transient(
        key="time-limit",
        pattern=r"DUE TO (?:TIME ?LIMIT|TIMEOUT)|step timed out|Exceeded job (?:time ?limit|walltime)|"
        r"has exceeded its time limit|walltime \d+ exceeded limit|TERM_RUNLIMIT|exceeded hard wallclock time",
        example="error: *** JOB 17 ON n1 CANCELLED DUE TO TIME LIMIT ***",
        what="the time limit was reached",
        advice="submit it again: a program that saves checkpoints continues; `sbatch -t` gives it more time",
    ),
    _transient(
        key="cancelled",
        pattern=r"srun: (?:error: )?Force Terminated job (?P<job>\d+)",
        example="srun: Force Terminated job 17",
        what="Slurm ended job {job}",
        advice="submit it again; `sacct -j JOBID -o state,reason` says who ended it",
        role="symptom",
        sure="likely",
    ),
    _transient(
        key="cancelled",
        pattern=r"srun: (?:error: )?Job has been cancelled|salloc: (?:error: )?Job "
        r"allocation \d+ has been revoked|job \d+ (?:has been )?(?:revoked|cancelled)",
        example="srun: error: Job has been cancelled",
        what="the job was cancelled, or its allocation was revoked while it waited or ran",
        advice="submit it again; `sacct -j JOBID -o state,reason` says who ended it",
        sure="likely",
    ),
    _transient(
        key="cancelled",
        pattern=r"\*\*\* JOB \S+ (?:ON \S+ )?CANCELLED AT (?P<time>\S+) (?:DUE to SIGNAL \w+ )?\*\*\*",
        example="slurmstepd: error: *** JOB 17 ON n1 CANCELLED AT 2026-11-21T23:10:00 ***",
        what="the job was cancelled",
        advice="submit it again: a program that saves checkpoints continues",
    ),
    line_rule(
        key="inherited-environment",
        pattern=r"set by two different environment variables|\bSLURM_\w+.* are mutually exclusive",
        example="srun: fatal: SLURM_MEM_PER_CPU, SLURM_MEM_PER_GPU, and SLURM_MEM_PER_NODE are mutually exclusive.",
        what="the job inherited variables of another job that contradict its own",
        advice="submit from a fresh shell and not inside a job, or `unset $(env | grep -oE '^S(LURM|BATCH)_[A-Z_]+')`",
    ),
    line_rule(
        key="ranks-not-started",
        pattern=r"ended with status 76: no rank has begun",
        example="2026-01-05T10:00:00+0000 slurmddp: job 17, attempt 0.0, ended with status 76: no rank has begun; srun "
        "says why, above, unless the launch block of a template starts none",
        what="no rank was started: srun could not start them, or the block `launch` of a --template starts none",
        advice="read the batch script's output: `slurmddp logs`; in a template keep super() in the block launch",
        role="symptom",
        sure="likely",
    ),
    _launch_failed(
        pattern=r"Task launch for \S+ failed on node (?P<host>\S+): (?P<why>.+)",
        example="srun: error: Task launch for StepId=17.0 failed on node n2: Invalid job credential",
        what="node {host} could not start the ranks: {why}",
        advice="submit it again without that node: -x NODE",
    ),
    _launch_failed(
        pattern=r"(?:srun|slurmstepd): error: (?P<why>(?:Application launch failed|.*can't find address for host|"
        r"Unable to resolve|.*[Pp]rolog .*(?:failed|error)|Unable to create TMPDIR|"
        r"(?:Failed|Unable) to (?:init|setup|create|attach).*(?:cgroup|container)).*)",
        example="srun: error: Application launch failed: Invalid job credential",
        what="a node could not start the ranks: {why}",
        advice="submit it again without that node: -x NODE; report it if it fails again",
        sure="likely",
    ),
    _transient(
        key="node-lost",
        pattern=r"srun: error: .*(?:[Aa]borting, io error|io error with slurmstepd|missing step) on node (?P<node>\d+)",
        example="srun: error: step_launch_notify_io_failure: aborting, io error with slurmstepd on node 0",
        what="srun lost a node of the step (its number {node})",
        advice="look at the node (`sinfo -R`), and submit the job again without it: -x NODE",
        role="symptom",
        sure="likely",
    ),
    _transient(
        key="munge",
        pattern=r"(?P<why>Munge (?:en|de)code failed: .+|Protocol authentication error|Failed to (?:access|connect to) "
        r"\S*munge\S*.*|Invalid authentication credential|If munged is up)",
        example='srun: error: Munge encode failed: Failed to access "/run/munge/munge.socket.2": No such file or '
        "directory",
        what="Slurm's authentication (munge) failed: {why}",
        advice="munged must run on this machine with the cluster's key, and the clocks must agree: report the node; "
        "in a "
        "container mount /run/munge",
    ),
    line_rule(
        key="output-missing",
        pattern=r"Could not open std(?:out|err|in) file (?P<path>.+?): (?P<why>.+)|Unable to open (?:std|IO).*: "
        r"(?P<how>.+)",
        example="slurmstepd: error: Could not open stdout file /logs/17.out: No such file or directory",
        what="the node could not open the job's output: {path} {why}{how}",
        advice="make the folder before you submit the job, on a file system that the nodes share",
    ),
    _launch_failed(
        pattern=r"execve\(\): (?P<path>\S*/slurm_script): No such file or directory",
        example="slurmstepd: error: execve(): /var/spool/slurmd/job00017/slurm_script: No such file or directory",
        what="the node lost the batch script before it could start it: {path}",
        advice="submit it again without that node: -x NODE; report the node to the cluster's administrators",
    ),
    line_rule(
        key="set-up-failed",
        pattern=r"set-up failed with status (?P<status>\d+): (?P<command>.+)",
        example="set-up failed with status 1: module load cuda/13",
        what="a set-up line failed with status {status}: {command}",
        advice="correct it (--setup, --module, --conda); to try it on a node: srun --pty bash",
    ),
    line_rule(
        key="supervisor-missing",
        pattern=r"slurm_script: line \d+: (?P<python>/\S*/python[\d.]*): "
        r"(?P<why>No such file or directory|Permission denied)",
        example="/var/spool/slurmd/job00017/slurm_script: line 42: /opt/env/bin/python: No such file or directory",
        what="the node cannot start {python}, which the batch script names: {why}",
        advice="choose a Python that the nodes have: --python, or --supervisor-python with --container",
    ),
    line_rule(
        key="protocol",
        pattern=r"(?P<why>this script speaks protocol \d+, and slurmddp .+ speaks \d+)",
        example="this script speaks protocol 1, and slurmddp 3.0.0 in /opt/env/lib speaks 2; submit the job again, or "
        "give the Python that made it by --python",
        what="slurmddp was replaced by another version while the job was queued: {why}",
        advice="submit it again",
    ),
    line_rule(
        key="variable-missing",
        pattern=r"(?P<name>\w+) must be set where the job is submitted",
        example="WANDB_API_KEY must be set where the job is submitted",
        what="the variable {name} was not set where the job was submitted",
        advice="export it, and submit again",
    ),
    _transient(
        key="run-taken",
        pattern=r"(?P<why>the run belongs to job .+)",
        example="the run belongs to job 17, which is RUNNING",
        what="{why}",
        advice="wait for that job or cancel it, or choose another --name",
    ),
    line_rule(
        key="limit-too-short",
        pattern=r"(?P<why>the time limit is \d+ s, and the notice comes .+)",
        example="the time limit is 120 s, and the notice comes 120 s before its end, which leaves less than 60 s; give "
        "--time 4 or more",
        what="{why}",
        advice="submit it with more time: -t",
    ),
    line_rule(
        key="container-missing",
        pattern=r"neither apptainer nor singularity is on PATH|srun has no --container-image",
        example="slurmddp: neither apptainer nor singularity is on PATH; load it by --module",
        what="the node has nothing that runs containers",
        advice="load one (--module), or submit without --container",
    ),
    _launch_failed(
        pattern=r"srun: error: Nodes (?P<nodes>\S+) are still not ready",
        example="srun: error: Nodes cpu001 are still not ready",
        what="nodes of the job did not boot: {nodes}",
        advice="submit it again; if it fails again, report the node to the administrators",
    ),
    line_rule(
        key="folder-not-shared",
        pattern=r"couldn't chdir to [`'](?P<folder>[^:]+)': (?P<why>.+?): going to /tmp instead",
        example="slurmstepd: error: couldn't chdir to `/root': Permission denied: going to /tmp instead",
        what="the node cannot enter the working directory {folder}: {why}",
        advice="submit from a folder that all nodes can read, or give it by --chdir",
        sure="likely",
    ),
    line_rule(
        key="gave-up",
        pattern=r"gives up: (?P<count>\d+) start(s|\(s\))? in a row failed",
        example="gives up: 4 starts in a row failed, with no new checkpoint since (--max-restarts 3); the last: "
        "rank 1 on n2: killed",
        what="{count} attempts in a row failed",
        advice="read why the first of them failed",
        role="symptom",
    ),
)

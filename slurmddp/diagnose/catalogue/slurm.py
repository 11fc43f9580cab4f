"""What Slurm and the batch script say. Data only."""

from typing import Final

from slurmddp.diagnose.values import Rule

RULES: Final = (
    Rule(
        key="time-limit",
        pattern=r"CANCELLED AT (?P<time>\S+) DUE TO TIME LIMIT",
        example="slurmstepd: error: *** JOB 17 ON n1 CANCELLED AT 2026-11-21T23:10:00 DUE TO TIME LIMIT ***",
        what="the time limit was reached",
        advice="submit its name again to go on from its last checkpoint, or with more time: -t",
        again=True,
        place="line",
    ),
    Rule(
        key="node-lost",
        pattern=r"DUE TO NODE FAILURE|Node failure on (?P<host>\S+)|lost node\(s\) (?P<nodes>[\w., -]+)",
        example="slurmstepd: error: *** STEP 17.0 ON n1 CANCELLED AT 2026-11-21T23:10:00 DUE TO NODE FAILURE, SEE "
        "SLURMCTLD LOG FOR DETAILS ***",
        what="a node was lost: {host}{nodes}",
        advice="submit it again without that node: -x NODE",
        again=True,
        place="line",
    ),
    Rule(
        key="preempted",
        pattern=r"CANCELLED AT (?P<time>\S+) DUE TO PREEMPTION",
        example="slurmstepd: error: *** JOB 17 ON n1 CANCELLED AT 2026-11-21T23:10:00 DUE TO PREEMPTION ***",
        what="a more urgent job took its nodes",
        advice="nothing: Slurm puts it back; if it is not, submit its name again",
        again=True,
        place="line",
    ),
    Rule(
        key="requeued",
        pattern=r"CANCELLED AT (?P<time>\S+) DUE TO JOB REQUEUE",
        example="slurmstepd: error: *** JOB 17 ON n1 CANCELLED AT 2026-11-21T23:10:00 DUE TO JOB REQUEUE ***",
        what="it was put back into the queue: by hand, by preemption, or as a node failed",
        advice="nothing: it starts again by itself",
        again=True,
        place="line",
        sure="likely",
    ),
    Rule(
        key="cancelled",
        pattern=r"\*\*\* JOB \S+ ON \S+ CANCELLED AT (?P<time>\S+) (?:DUE to SIGNAL \w+ )?\*\*\*",
        example="slurmstepd: error: *** JOB 17 ON n1 CANCELLED AT 2026-11-21T23:10:00 ***",
        what="the job was cancelled",
        advice="submit its name again to go on from its last checkpoint",
        again=True,
        place="line",
    ),
    Rule(
        key="step-refused",
        pattern=r"Unable to create step for job \d+: (?P<why>.+)",
        example="srun: error: Unable to create step for job 17: More processors requested than permitted",
        what="srun could not start the ranks: {why}",
        advice="ask for as many tasks and CPUs as the step uses (-N, --ntasks-per-node, -c)",
        place="line",
    ),
    Rule(
        key="inherited-environment",
        pattern=r"set by two different environment variables|are mutually exclusive",
        example="srun: fatal: SLURM_MEM_PER_CPU, SLURM_MEM_PER_GPU, and SLURM_MEM_PER_NODE are mutually exclusive.",
        what="the job inherited variables of another job, which contradict its own",
        advice="submit from a fresh shell, or by slurmddp submit, which leaves them out",
        place="line",
    ),
    Rule(
        key="launch-failed",
        pattern=r"Task launch for \S+ failed on node (?P<node>\S+): (?P<why>.+)",
        example="srun: error: Task launch for StepId=17.0 failed on node n2: Invalid job credential",
        what="node {node} could not start the ranks: {why}",
        advice="submit it again without that node: -x NODE",
        again=True,
        place="line",
    ),
    Rule(
        key="set-up-failed",
        pattern=r"set-up failed with status (?P<status>\d+): (?P<command>.+)",
        example="2026-11-21T23:10:00+0000 slurmddp: set-up failed with status 1: module load cuda/13",
        what="a line of the set-up ended with status {status}: {command}",
        advice="correct it (--setup, --module, --conda), and try it on a node: srun --pty bash",
        place="line",
    ),
    Rule(
        key="variable-missing",
        pattern=r"(?P<name>\w+) must be set where the job is submitted",
        example="2026-11-21T23:10:00+0000 slurmddp: WANDB_API_KEY must be set where the job is submitted",
        what="the variable {name} was not set where the job was submitted",
        advice="export it, and submit again",
        place="line",
    ),
    Rule(
        key="run-taken",
        pattern=r"starts nothing: (?P<why>the run belongs to .+)",
        example="2026-11-21T23:10:00+0000 slurmddp: job 18, attempt 0.0, starts nothing: the run belongs to job 17, "
        "which is RUNNING",
        what="{why}",
        advice="wait for that job or cancel it, or choose another --name",
        again=True,
        place="line",
    ),
    Rule(
        key="limit-too-short",
        pattern=r"(?P<why>the time limit is \d+ s, and the notice comes .+)",
        example="2026-11-21T23:10:00+0000 slurmddp: the time limit is 120 s, and the notice comes 120 s before its "
        "end, which leaves less than 60 s; give --time 4 or more",
        what="{why}",
        advice="submit it with more time: -t",
        place="line",
    ),
    Rule(
        key="container-missing",
        pattern=r"neither apptainer nor singularity is on PATH|srun has no --container-image",
        example="slurmddp: neither apptainer nor singularity is on PATH; load it by --module",
        what="the node has nothing that runs containers",
        advice="load it by --module, or submit without --container",
        place="line",
    ),
    Rule(
        key="controller-silent",
        pattern=r"Unable to contact slurm controller|Unable to confirm allocation for job",
        example="srun: error: Unable to confirm allocation for job 17: Unable to contact slurm controller (connect "
        "failure)",
        what="the node could not reach Slurm's controller",
        advice="submit it again; if it comes again, ask those who run the cluster",
        again=True,
        place="line",
    ),
    Rule(
        key="gave-up",
        pattern=r"gives up: (?P<count>\d+) start\(s\) in a row failed",
        example="2026-11-21T23:10:00+0000 slurmddp: gives up: 4 start(s) in a row failed, with no new checkpoint "
        "since (--max-restarts 3)",
        what="{count} starts in a row failed",
        advice="the first of them says why",
        role="symptom",
        place="line",
    ),
)

"""What preemption does to a job, said before the queue; and a cluster that does not answer."""

import pytest

from slurmddp.cluster import Cluster, Partition
from slurmddp.cluster.request import Request
from slurmddp.config.job_spec import JobSpec
from slurmddp.config.resolve import Resolved
from slurmddp.doctor.slurm_check import check_cluster, describe_preemption


@pytest.mark.parametrize(
    ("preemption", "grace_s", "requeues", "level", "words"),
    [
        ("off", 0, True, "ok", "no job is preempted"),
        ("requeue", 30, True, "ok", "is requeued after a grace time of 30 s; the ranks are told at once"),
        ("requeue", 0, True, "note", "is requeued at once; the ranks are told by SIGTERM, and have 30 s"),
        ("requeue", 30, False, "warning", "is cancelled after a grace time of 30 s"),
        ("cancel", 30, True, "note", "it requeues itself within the grace time"),
        ("cancel", 0, True, "warning", "is cancelled at once"),
        ("suspend", 0, True, "warning", "is suspended, and continues later"),
    ],
)
def test_preemption_is_described_for_each_mode(preemption, grace_s, requeues, level, words):
    partition = Partition(name="gpu", preemption=preemption, grace_s=grace_s)
    found = describe_preemption(partition, Cluster(), requeues=requeues)
    assert found.level == level and found.what.startswith("partition gpu: ") and words in found.what


def test_preemption_by_qos_is_left_to_the_site():
    found = describe_preemption(Partition(name="gpu"), Cluster(preempts_by_qos=True), requeues=True)
    assert found.level == "note" and "QOS" in found.what


@pytest.mark.parametrize(
    ("version", "level"),
    [("22.05.8", "ok"), ("23.11.4", "ok"), ("26.05.5", "ok"), ("21.08.1", "note"), ("26.11.0", "note"), ("", "ok")],
)
def test_a_version_that_was_never_tested_is_named(version, level):
    cluster = Cluster(name="c", version=version, partitions=(Partition(name="gpu", default=True),))
    found = next(check_cluster(Request(Resolved(JobSpec(job_name="exp"), {}), cluster), None, {}))
    assert (found.check, found.level) == ("slurm", level)
    assert ("22.05, 24.11, 26.05" in found.why) == (level == "note")


def test_a_cluster_that_requeues_nothing_by_itself_is_told():
    cluster = Cluster(requeue=False, partitions=(Partition(name="gpu", default=True),))
    found = check_cluster(Request(Resolved(JobSpec(job_name="exp"), {}), cluster), None, {})
    assert ("requeue", "note") in [(each.check, each.level) for each in found]


def test_a_silent_cluster_is_an_error_of_status_3():
    request = Request(Resolved(JobSpec(job_name="exp"), {}), silence="sinfo was not found")
    (found,) = check_cluster(request, b"", {})
    assert (found.level, found.status, found.what) == ("error", 3, "sinfo was not found")

"""Every reason for which Slurm lets a job wait is explained."""

import re
from pathlib import Path

import pytest

from slurmddp.slurm.pending_reasons import Explanation, explain, never_starts

REASONS = Path(__file__).parent / "fixtures" / "reasons.txt"
RESOURCES = ("Mem", "Memory", "Node", "GRES", "Energy", "License", "BB", "Billing", "Unknown")
NAMES = [name for line in REASONS.read_text().splitlines()[1:] for name in line.split()]
FAMILIES = [
    pattern.format(resource)
    for resource in RESOURCES
    for pattern in (
        *("AssocGrp{}", "AssocGrp{}Minutes", "AssocGrp{}RunMinutes"),
        *("AssocMax{}PerJob", "AssocMax{}PerNode", "AssocMax{}MinutesPerJob"),
        *("QOSGrp{}", "QOSGrp{}Minutes", "QOSGrp{}RunMinutes", "QOSMax{}PerJob", "QOSMax{}PerNode"),
        *("QOSMax{}PerUser", "QOSMax{}MinutesPerJob", "QOSMin{}", "Max{}PerAccount"),
    )
]


@pytest.mark.parametrize("reason", NAMES + FAMILIES)
def test_every_reason_of_slurm_is_explained(reason):
    found = explain(reason)
    assert found.meaning != reason and re.match("[a-z]|Slurm", found.meaning)
    assert (
        found.by_itself == "yes"
        or found.advice
        or reason in ("FrontEndDown", "TimeLimit", "OutOfMemory", "InactiveLimit")
    )


@pytest.mark.parametrize(
    ("reason", "by_itself", "meaning", "advice"),
    [
        ("PartitionConfig", "no", "no node of its partition has", "slurmddp cluster"),
        ("PartitionNodeLimit", "no", "nodes", ""),
        ("BeginTime", "yes", "", ""),
        ("Dependency", "yes", "", ""),
        ("PartitionTimeLimit", "no", "above the partition's", "scontrol update JobId=17 TimeLimit="),
        ("(JobHeldUser)", "no", "held by its owner", "scontrol release 17"),
        ("launch_failed_requeued_held", "no", "a node failed to start it", "ExcNodeList"),
        ("launch_failure_limit_exceeded_requeued_held", "no", "so often that it holds it", "scontrol release 17"),
        ("Resources", "yes", "in use by other jobs", "slurmddp diagnose 17"),
        ("ReqNodeNotAvail, UnavailableNodes:n[1-2]", "perhaps", "down, drained, or reserved", "scontrol show job 17"),
        ("ReqNodeNotAvail,_Reserved_for_maintenance", "perhaps", "maintenance", "TimeLimit="),
        (
            "Nodes required for job are DOWN, DRAINED, REBOOTING or reserved for jobs in higher priority partitions",
            "perhaps",
            "too many nodes are down",
            "Partition=",
        ),
        ("QOSMaxGRESPerUser", "perhaps", "a limit of its QOS is reached (QOSMaxGRESPerUser)", "when other jobs end"),
        ("MaxNodePerAccount", "perhaps", "a limit of your account is reached (MaxNodePerAccount)", "submit smaller"),
        ("QOSMaxGRESPerJob", "no", "more or less than its QOS allows (QOSMaxGRESPerJob)", "slurmddp cancel 17"),
        ("AssocMaxMemPerNode", "no", "more or less than your account allows (AssocMaxMemPerNode)", "another -q or -A"),
        ("QOSMinGRES", "no", "more or less than its QOS allows (QOSMinGRES)", "within the limit"),
        ("AssocGrpBillingMinutes", "perhaps", "a limit of your account is reached (AssocGrpBillingMinutes)", "-A"),
        (
            *("Job's_account_not_permitted_to_use_this_partition_(low_allows_parent_not_child)", "no"),
            *("its partition does not take its account", "JobId=17 Account=..."),
        ),
        ("DEADLINE", "no", "before its deadline", "slurmddp cancel 17"),
    ],
)
def test_a_reason_says_whether_it_ends_by_itself_and_what_to_type(reason, by_itself, meaning, advice):
    found = explain(reason, "17")
    assert found.by_itself == by_itself
    assert meaning in found.meaning
    assert advice in found.advice


def test_a_job_that_has_no_reason_yet_is_explained():
    """As squeue shows one that was requeued a second ago."""
    assert explain("") == Explanation("yes", "Slurm has given no reason yet")


def test_an_unknown_reason_falls_to_its_own_name():
    assert explain("Something_New") == Explanation("perhaps", "Something New")


def test_the_limits_of_one_job_keep_it_from_ever_starting():
    limits = [name for name in NAMES + FAMILIES if re.search("Grp|Max|Min", name) and "Requeue" not in name]
    assert {name for name in limits if never_starts(name)} == {
        name for name in limits if re.match("QOSMin|MaxMemPerLimit", name) or "PerJob" in name or "PerNode" in name
    }

"""What is said before the queue: variables that travel, the notice, preemption; a cluster that does not answer."""

import re
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from slurmddp.cluster.partitions import Cluster, Partition
from slurmddp.cluster.request import Request
from slurmddp.config.batch_script import parse_batch_script
from slurmddp.config.job_spec import JobSpec
from slurmddp.config.resolve import Resolved
from slurmddp.doctor import catalogue
from slurmddp.doctor.before_submission import (
    check_cluster,
    check_job,
    check_variables,
    describe_preemption,
)
from slurmddp.slurm import sbatch_command
from slurmddp.slurm.client import Answer


def test_each_finding_has_a_level_and_a_check_that_uses_it():
    used = "".join(path.read_text() for path in Path(catalogue.__file__).parent.glob("*.py"))
    for check, cases in catalogue.CATALOGUE.texts.items():
        assert re.search(rf'"{check}"', used), check
        for case, texts in cases.items() if check != "inherited" else ():
            assert texts["level"] in ("ok", "note", "warning", "error") and texts["what"], (check, case)
            assert re.search(rf'"{case.removesuffix("-in-grace-time")}"', used), (check, case)


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


def spec(**changes) -> JobSpec:
    return JobSpec(**({"job_name": "exp", "command": ("train.py",)} | changes))


def find_notice(job: JobSpec):
    return next(found for found in check_job(Request(Resolved(job, {}), None), {}) if found.check == "notice")


def told(environ, **changes) -> list[str]:
    return [f"{each.level}: {each.what}" for each in check_variables(spec(**changes), environ)]


def test_what_does_not_travel_is_named_without_values():
    (found,) = told({"SLURM_JOB_ID": "17", "SBATCH_MEM_PER_CPU": "1", "MASTER_ADDR": "n9", "HOME": "/h"})
    wanted = "MASTER_ADDR, SBATCH_MEM_PER_CPU, SLURM_JOB_ID"
    assert found == f"note: the job does not inherit 3 variables of another job or of sbatch: {wanted}"
    assert told({f"SLURM_{number}": "" for number in range(9)})[0].endswith("SLURM_5 and 3 more")


@pytest.mark.parametrize(
    ("environ", "changes", "words"),
    [
        ({"NCCL_P2P_DISABLE": "1"}, {}, "warning: the job inherits NCCL_P2P_DISABLE=1"),
        ({"NCCL_P2P_DISABLE": "0"}, {}, None),
        ({"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}, {}, "warning: the job inherits TORCH_DISTRIBUTED_DEBUG=DETAIL"),
        ({"NCCL_P2P_DISABLE": "1"}, {"env": ("NCCL_P2P_DISABLE",)}, None),
        ({}, {"env": ("TOKEN",)}, "error: --env TOKEN: TOKEN is not set here"),
        ({}, {"env": ("TOKEN=1",)}, None),
        ({"NCCL_SOCKET_IFNAME": "eth9"}, {}, "note: the job inherits NCCL_SOCKET_IFNAME=eth9, which must be correct"),
        ({"NCCL_SOCKET_IFNAME": "eth9"}, {"interface": "ib0"}, None),
        ({"CUDA_VISIBLE_DEVICES": "0"}, {}, "warning: a job without GPUs inherits CUDA_VISIBLE_DEVICES=0"),
        ({"CUDA_VISIBLE_DEVICES": "0"}, {"gpus_per_node": "1"}, None),
        ({"HOME": "/h", "OMP_NUM_THREADS": "1"}, {}, None),
    ],
)
def test_what_travels_and_matters_is_told(environ, changes, words):
    found = told(environ, **changes)
    assert found == [] if words is None else (len(found) == 1 and found[0].startswith(words))


def test_when_the_notice_comes_and_whether_the_job_comes_back():
    found = find_notice(spec(time="60"))
    assert found.level == "ok" and "120 s before the end of the time limit 60" in found.what
    found = find_notice(spec(requeue=False))
    assert found.level == "warning" and "--chain" in found.advice


@pytest.mark.parametrize(("ahead", "level"), [(1, "ok"), (365, "note")])
def test_a_start_in_a_year_is_told_as_what_jobs_without_a_limit_cause(monkeypatch, ahead, level):
    start = datetime.now().astimezone() + timedelta(days=ahead)
    said = Answer(0, "", f"sbatch: Job 17 to start at {start:%Y-%m-%dT%H:%M:%S} using 2 processors")
    monkeypatch.setattr(sbatch_command.client, "ask", lambda *_, **__: said)
    cluster = Cluster(partitions=(Partition(name="gpu", default=True),))
    found = check_cluster(Request(Resolved(JobSpec(job_name="exp"), {}), cluster), b"#!/bin/sh\n", {})
    assert [one.level for one in found if one.check == "sbatch"] == [level]


@pytest.mark.parametrize(("text", "level"), [("import torch\n", "warning"), ("import torch.distributed\n", "ok")])
def test_a_script_for_one_gpu_is_told_before_several_ranks_run_it(tmp_path, monkeypatch, text, level):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(text)
    found = check_job(Request(Resolved(spec(ntasks_per_node=2), {}), None), {})
    assert next(one.level for one in found if one.check == "program") == level


def test_each_error_says_what_to_type(monkeypatch, tmp_path):
    """Also that of a batch script of one's own: what sbatch refuses, and what slurmddp cannot take."""
    monkeypatch.chdir(tmp_path)
    refused = Answer(1, "", "allocation failure: Invalid partition name specified")
    monkeypatch.setattr(sbatch_command.client, "ask", lambda *_, **__: refused)
    own = parse_batch_script("own.sh", b"#!/bin/bash\n#SBATCH -p nosuch\nsrun python a.py\n")
    found = list(check_job(Request(Resolved(JobSpec(job_name="own", script=own), {})), {}))
    assert [one.advice for one in found if one.check == "sbatch"] == ["`slurmddp cluster` shows what there is"]
    cluster = Cluster(partitions=(Partition(name="gpu", default=True),))
    for spec in (JobSpec(job_name="own", script=own), JobSpec(job_name="x", command=("no.py",), partition="nosuch")):
        request = Request(Resolved(spec, {}), cluster)
        assert all(one.advice for one in check_job(request, {}) if one.level == "error")

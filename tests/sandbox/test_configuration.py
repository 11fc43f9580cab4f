from pathlib import Path

import pytest

from slurmddp.errors import UsageError
from slurmddp.sandbox import Plan, Shape, configuration

FOLDER = Path("/s")


@pytest.mark.parametrize(
    "options",
    [
        {"nodes": 0},
        {"nodes": 201},
        {"cpus_per_node": 0},
        {"gpus_per_node": -1},
        {"memory_per_node": 0},
        {"kill_wait_s": 0},
        {"slurmd_timeout_s": 0},
        {"name": ""},
        {"name": "../x"},
        {"name": "-x"},
        {"name": "A"},
        {"name": "a\n"},
        {"name": "a" * 33},
    ],
)
def test_an_impossible_plan_is_refused_with_its_option(options):
    option = "--" + next(iter(options)).removesuffix("_s").replace("_", "-")
    with pytest.raises(UsageError, match=option):
        Plan(**options)


@pytest.mark.parametrize("line", ["SelectType", "=x", "A=b\nC=d", "", "# A=b"])
def test_what_is_no_line_of_slurm_conf_is_refused(line):
    with pytest.raises(UsageError, match="--slurm-conf .*not a line of slurm.conf"):
        Plan(slurm_conf=(line,))


def conf(first_job_id=1, **plan):
    return configuration.slurm_conf(Plan(**plan), FOLDER, first_job_id).splitlines()


def gres(**plan):
    return configuration.gres_conf(Plan(**plan), FOLDER).splitlines()


def test_lines_of_the_user_replace_those_of_the_sandbox():
    lines = ("selecttype=select/linear", "SelectTypeParameters=", "RequeueExitHold=9")
    text = conf(slurm_conf=lines)
    assert [line for line in text if line.lower().startswith("selecttype")] == ["selecttype=select/linear"]
    assert "RequeueExitHold=9" in text
    assert set(conf()) > set(text) - set(lines)


def test_every_node_has_its_own_address_and_name_in_the_hosts_file():
    text = configuration.hosts(Plan(nodes=3), "127.0.0.1 localhost\n10.9.9.9 n1\n")
    assert text.splitlines() == [
        "10.77.0.254 login",
        "10.77.0.1 n1",
        "10.77.0.2 n2",
        "10.77.0.3 n3",
        "::ffff:10.77.0.254 login.mapped",
        "::ffff:10.77.0.1 n1.mapped",
        "::ffff:10.77.0.2 n2.mapped",
        "::ffff:10.77.0.3 n3.mapped",
        "127.0.0.1 localhost",
        "10.9.9.9 n1",
    ]


@pytest.mark.parametrize(
    ("plan", "wanted"),
    [
        ({"name": "ci"}, {"ClusterName=sandbox-ci", "AuthInfo=cred_expire=5,socket=/s/munge.socket"}),
        (
            {"nodes": 4, "cpus_per_node": 32, "memory_per_node": 9},
            {"NodeName=n[1-4] NodeAddr=10.77.0.[1-4] CPUs=32 RealMemory=9 Gres=gpu:8 State=UNKNOWN"},
        ),
        ({"nodes": 1}, {"NodeName=n1 NodeAddr=10.77.0.1 CPUs=16 RealMemory=16000 Gres=gpu:8 State=UNKNOWN"}),
        ({}, {"KillWait=5", "SlurmdTimeout=10", "SelectTypeParameters=CR_Core"}),
        ({"kill_wait_s": 30, "slurmd_timeout_s": 60}, {"KillWait=30", "SlurmdTimeout=60"}),
        ({"accounting": True}, {"AccountingStorageType=accounting_storage/slurmdbd"}),
        ({"first_job_id": 42}, {"FirstJobId=42"}),
    ],
)
def test_slurm_conf_claims_what_the_plan_says(plan, wanted):
    assert wanted <= set(conf(**plan))


def test_what_was_not_asked_for_is_left_out():
    assert not [line for line in conf() if "AccountingStorage" in line or "OverMemoryKill" in line]
    assert not [line for line in conf(gpus_per_node=0) if "Gres" in line]
    assert gres(gpus_per_node=0) == []


def test_slurm_conf_has_a_partition_for_each_kind_of_preemption():
    partitions = [line for line in conf() if line.startswith("PartitionName=")]
    names = [line.split()[0].partition("=")[2] for line in partitions]
    assert names == ["gpu", "low", "nograce", "cancel", "high", "short"]
    steady = [name for name, line in zip(names, partitions, strict=True) if "PreemptMode=OFF" in line]
    assert steady == ["gpu", "high", "short"]


def test_partitions_besides_the_six_have_nodes_of_their_own():
    shapes = {"nodes": 2, "partitions": (Shape.parse("a:nodes=2,gpus=t4:1+l4:2"), Shape.parse("b:cpus=1,MaxNodes=1"))}
    assert {
        "NodeName=n[3-4] NodeAddr=10.77.0.[3-4] CPUs=16 RealMemory=16000 Gres=gpu:t4:1,gpu:l4:2 State=UNKNOWN",
        "PartitionName=b State=UP MaxTime=INFINITE PriorityTier=10 PreemptMode=OFF MaxNodes=1 Nodes=n5",
    } <= set(conf(**shapes))
    assert gres(**shapes) == [
        "NodeName=n[1-2] Name=gpu File=/s/dev/nvidia[0-7]",
        "NodeName=n[3-4] Name=gpu Type=t4 File=/s/dev/nvidia0",
        "NodeName=n[3-4] Name=gpu Type=l4 File=/s/dev/nvidia[1-2]",
    ]
    assert Plan(**shapes).node_names == ("n1", "n2", "n3", "n4", "n5")


def test_without_common_nodes_there_are_the_given_partitions_alone_and_the_first_is_the_default():
    alone = {"nodes": 0, "partitions": (Shape.parse("a"), Shape.parse("b:nodes=0,Nodes=ALL"))}
    first, second = (line for line in conf(**alone) if line.startswith("PartitionName="))
    assert first.startswith("PartitionName=a Default=YES ")
    assert second.startswith("PartitionName=b State=UP ") and second.endswith("Nodes=ALL")
    assert Plan(**alone).most_gpus == 0 and not [line for line in conf(**alone) if "Gres" in line]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"partitions": ("gpu",)}, "--partition gpu: there is already a partition of that name"),
        ({"nodes": 0, "partitions": ("a", "a")}, "--partition a: there is already a partition of that name"),
        ({"nodes": 0, "partitions": ("a:nodes=0",)}, "together 0: allowed are 1 to 200"),
        ({"nodes": 0, "partitions": ()}, "--nodes 0: allowed are 1 to 200, or 0 with --partition"),
        ({"nodes": 199, "partitions": ("a:nodes=2",)}, "together 201: allowed are 1 to 200"),
    ],
)
def test_partitions_that_do_not_fit_together_are_refused(options, said):
    with pytest.raises(UsageError, match=said):
        Plan(**options | {"partitions": tuple(map(Shape.parse, options["partitions"]))})


def test_slurmdbd_conf_names_the_owner_and_a_database_of_its_own():
    lines = configuration.slurmdbd_conf(Plan(name="a-b"), FOLDER, "ada").splitlines()
    assert "SlurmUser=ada" in lines
    assert "StorageLoc=sandbox_a_b" in lines


def test_the_user_is_number_0_inside_and_comes_before_root():
    host = "root:x:0:0:root:/root:/bin/bash\nada:x:1000:1000:Ada:/home/ada:/bin/sh\nadam:x:1:1::/:/bin/sh\n"
    assert configuration.passwd("ada", "Ada:/home/ada:/bin/sh", host).splitlines() == [
        "ada:x:0:0:Ada:/home/ada:/bin/sh",
        "root:x:0:0:root:/root:/bin/bash",
        "adam:x:1:1::/:/bin/sh",
    ]


def test_each_sandbox_numbers_its_jobs_from_the_time_it_was_made():
    assert configuration.first_job_id(1767225600) == 1
    assert configuration.first_job_id(1767225600 + 25) == 3
    assert 1 <= configuration.first_job_id(0) < 67043328
    assert 1 <= configuration.first_job_id(2**40) < 67043328


def test_cgroups_are_switched_off_where_slurmd_would_read_them():
    assert configuration.cgroup_conf((22, 5)) == configuration.cgroup_conf((23, 11)) == ""
    assert configuration.cgroup_conf((24, 5)) == configuration.cgroup_conf((26, 5)) == "CgroupPlugin=disabled\n"


def test_a_shape_is_read_with_all_its_parts():
    text = "big:nodes=2,cpus=40,gpus=a100:4+h100:4,memory=64000,MaxTime=1:00:00,AllowAccounts=a,b"
    assert Shape.parse(text) == Shape(
        name="big",
        nodes=2,
        cpus=40,
        memory=64000,
        gpus=(("a100", 4), ("h100", 4)),
        options=(("MaxTime", "1:00:00"), ("AllowAccounts", "a,b")),
    )
    assert Shape.parse("p") == Shape(name="p")
    assert Shape.parse("p:gpus=2").gpus == (("", 2),)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "use NAME:nodes=1"),
        ("DEFAULT", "use NAME:nodes=1"),
        ("a b:cpus=1", "use NAME:nodes=1"),
        ("p:cpus", "use NAME:nodes=1"),
        ("p:sockets=2", "use NAME:nodes=1"),
        ("p:MaxTime=1 #", "use NAME:nodes=1"),
        ("p:MaxTime=1\nx", "use NAME:nodes=1"),
        ("p:cpus=0", "cpus='0': allowed are 1 to 4096"),
        ("p:nodes=201", "nodes='201': allowed are 0 to 200"),
        ("p:gpus=x", "gpus='x' is not a count"),
        ("p:gpus=a:100+b:100", "gpus='200': allowed are 0 to 128"),
    ],
)
def test_a_shape_that_cannot_be_is_refused_with_what_can(text, said):
    with pytest.raises(UsageError, match=f"^--partition .*: {said}"):
        Shape.parse(text)

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


def test_lines_of_the_user_replace_those_of_the_sandbox():
    lines = ("selecttype=select/linear", "SelectTypeParameters=", "RequeueExitHold=9")
    text = configuration.slurm_conf(Plan(slurm_conf=lines), FOLDER, 1).splitlines()
    assert [line for line in text if line.lower().startswith("selecttype")] == ["selecttype=select/linear"]
    assert "RequeueExitHold=9" in text
    assert set(configuration.slurm_conf(Plan(), FOLDER, 1).splitlines()) > set(text) - set(lines)


def test_an_unknown_node_is_refused_with_the_names_of_the_nodes():
    with pytest.raises(UsageError, match="no node 'n3' in this sandbox; its nodes are n1 n2"):
        Plan(nodes=2).address("n3")


def test_every_node_has_its_own_address_and_name_in_the_hosts_file():
    text = configuration.hosts(Plan(nodes=3), "127.0.0.1 localhost\n10.9.9.9 n1\n")
    assert text.splitlines() == [
        "10.77.0.254 login",
        "10.77.0.1 n1",
        "10.77.0.2 n2",
        "10.77.0.3 n3",
        "::ffff:10.77.0.254 login",
        "::ffff:10.77.0.1 n1",
        "::ffff:10.77.0.2 n2",
        "::ffff:10.77.0.3 n3",
        "127.0.0.1 localhost",
        "10.9.9.9 n1",
    ]


def test_slurm_conf_claims_what_the_plan_says():
    lines = configuration.slurm_conf(
        Plan(name="ci", nodes=4, cpus_per_node=32, memory_per_node=9), FOLDER, 1
    ).splitlines()
    assert "ClusterName=sandbox-ci" in lines
    assert "NodeName=n[1-4] NodeAddr=10.77.0.[1-4] CPUs=32 RealMemory=9 Gres=gpu:8 State=UNKNOWN" in lines, lines
    assert "AuthInfo=cred_expire=5,socket=/s/munge.socket" in lines


def test_slurm_conf_has_a_partition_for_each_kind_of_preemption():
    lines = configuration.slurm_conf(Plan(), FOLDER, 1).splitlines()
    names = [line.split()[0] for line in lines if line.startswith("PartitionName=")]
    assert names == [f"PartitionName={name}" for name in ("gpu", "low", "nograce", "cancel", "high", "short")]
    steady = [line.split()[0].partition("=")[2] for line in lines if "PreemptMode=OFF" in line]
    assert steady == ["gpu", "high", "short"]


def test_slurm_conf_has_the_waits_of_the_plan():
    assert {"KillWait=5", "SlurmdTimeout=10"} <= set(configuration.slurm_conf(Plan(), FOLDER, 1).splitlines())
    real = Plan(kill_wait_s=30, slurmd_timeout_s=60)
    assert {"KillWait=30", "SlurmdTimeout=60"} <= set(configuration.slurm_conf(real, FOLDER, 1).splitlines())


def test_one_node_is_no_range():
    assert "NodeName=n1 NodeAddr=10.77.0.1 " in configuration.slurm_conf(Plan(nodes=1), FOLDER, 1)


def test_without_gpus_nothing_speaks_of_gpus():
    none = Plan(gpus_per_node=0)
    assert configuration.gres_conf(none, FOLDER) == ""
    assert "Gres" not in configuration.slurm_conf(none, FOLDER, 1)


def test_partitions_besides_the_six_have_nodes_of_their_own():
    shaped = Plan(nodes=2, partitions=(Shape.parse("a:nodes=2,gpus=t4:1+l4:2"), Shape.parse("b:cpus=1,MaxNodes=1")))
    lines = configuration.slurm_conf(shaped, FOLDER, 1).splitlines()
    assert (
        "NodeName=n[3-4] NodeAddr=10.77.0.[3-4] CPUs=16 RealMemory=16000 Gres=gpu:t4:1,gpu:l4:2 State=UNKNOWN" in lines
    )
    assert "PartitionName=b State=UP MaxTime=INFINITE PriorityTier=10 PreemptMode=OFF MaxNodes=1 Nodes=n5" in lines
    assert configuration.gres_conf(shaped, FOLDER).splitlines()[1:] == [
        "NodeName=n[3-4] Name=gpu Type=t4 File=/s/dev/nvidia0",
        "NodeName=n[3-4] Name=gpu Type=l4 File=/s/dev/nvidia[1-2]",
    ]
    assert shaped.node_names == ("n1", "n2", "n3", "n4", "n5")


def test_without_common_nodes_there_are_the_given_partitions_alone_and_the_first_is_the_default():
    alone = Plan(nodes=0, partitions=(Shape.parse("a"), Shape.parse("b:nodes=0,Nodes=ALL")))
    lines = [
        line for line in configuration.slurm_conf(alone, FOLDER, 1).splitlines() if line.startswith("PartitionName=")
    ]
    assert [line.split()[:2] for line in lines] == [["PartitionName=a", "Default=YES"], ["PartitionName=b", "State=UP"]]
    assert lines[1].endswith("Nodes=ALL")
    assert alone.most_gpus == 0 and "Gres" not in configuration.slurm_conf(alone, FOLDER, 1)


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


@pytest.mark.parametrize(("gpus", "files"), [(1, "nvidia0"), (8, "nvidia[0-7]")])
def test_gres_conf_names_the_files_that_stand_for_gpus(gpus, files):
    text = configuration.gres_conf(Plan(gpus_per_node=gpus), FOLDER)
    assert text == f"NodeName=n[1-2] Name=gpu File=/s/dev/{files}\n"


def test_memory_is_given_out_and_watched_only_where_asked_for():
    without, with_limits = (configuration.slurm_conf(Plan(memory_limits=asked), FOLDER, 1) for asked in (False, True))
    assert "SelectTypeParameters=CR_Core\n" in without and "OverMemoryKill" not in without
    assert "SelectTypeParameters=CR_Core_Memory\n" in with_limits and "OverMemoryKill" in with_limits


def test_accounting_is_off_unless_asked_for():
    assert "AccountingStorage" not in configuration.slurm_conf(Plan(), FOLDER, 1)
    assert "AccountingStorageType=accounting_storage/slurmdbd" in configuration.slurm_conf(
        Plan(accounting=True), FOLDER, 1
    )


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
    assert "FirstJobId=42" in configuration.slurm_conf(Plan(), FOLDER, 42).splitlines()


def test_cgroups_are_switched_off_where_slurmd_would_read_them():
    assert configuration.cgroup_conf((22, 5)) == configuration.cgroup_conf((23, 11)) == ""
    assert configuration.cgroup_conf((24, 5)) == configuration.cgroup_conf((26, 5)) == "CgroupPlugin=disabled\n"

"""A JobSpec that exists is right by itself; a wrong one says in one line what is allowed."""

import pytest

from slurmddp.config.batch_script import check_batch_script
from slurmddp.config.job_spec import JOB_FIELDS, JobSpec
from slurmddp.config.option_types import Given, convert
from slurmddp.config.script_options import merge_options
from slurmddp.errors import UsageError


def job(**values) -> JobSpec:
    return JobSpec(**{"job_name": "x"} | values)


def test_ranks_default_to_the_gpus_of_a_node_else_to_one():
    assert job(nodes=2, gpus_per_node="a100:8").world_size == 16
    assert job(nodes=2).world_size == 2
    assert job(nodes=2, gpus_per_node="8", ntasks_per_node=4).world_size == 8


@pytest.mark.parametrize(
    ("limit", "lead", "margin"),
    [(None, 120, 60), ("0", 120, 60), ("60", 120, 60), ("4", 60, 60), ("1", 15, 45), ("0:02", 1, 1)],
)
def test_the_notice_comes_two_minutes_or_a_quarter_before_the_end_and_not_at_once(limit, lead, margin):
    assert (job(time=limit).lead_s, job(time=limit).margin_s) == (lead, margin)


@pytest.mark.parametrize(("limit", "lead"), [("3", 120), ("1", 10), ("2", 60)])
def test_a_lead_that_leaves_no_time_to_train_is_refused(limit, lead):
    with pytest.raises(UsageError, match="--signal-lead"):
        job(time=limit, signal_lead=lead)


@pytest.mark.parametrize("key", ["max-restarts", "max-requeues"])
def test_a_cap_is_a_whole_number_from_0(key):
    assert convert(JOB_FIELDS[key], "0", key) == 0
    for raw in ("-1", "x", "1.5"):
        with pytest.raises(UsageError, match=f"{key}: '{raw}' is not a whole number, 0 or more"):
            convert(JOB_FIELDS[key], raw, key)


@pytest.mark.parametrize(
    "name", ["a/b", "-x", "a\nb", "", "17", "17_3", ".", "..", "a b", "x" * 65, "a$(id)", "é", "17\n"]
)
def test_a_name_that_cannot_be_a_folder_is_refused(name):
    with pytest.raises(UsageError, match="not allowed|empty"):
        job(job_name=name)


@pytest.mark.parametrize("field", ["partition", "account", "qos", "constraint", "nodelist", "exclude", "dependency"])
@pytest.mark.parametrize("value", ["gpu\n#SBATCH --uid=0", "a\rb", "\x1b[2J", ""])
def test_a_header_text_that_could_inject_is_refused_with_its_option(field, value):
    with pytest.raises(UsageError, match=f"--{field}: "):
        job(**{field: value})


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("partition=x", "--partition"),
        ("part=x", "--partition"),
        ("gpus-per-n=3", "--gpus-per-node"),
        ("output=/x", "the output of a run is in its folder"),
        ("open-m=truncate", "slurmddp sets it itself, leave it out"),
        ("gpus-per-task=1", "use --gpus-per-node"),
        ("gres=gpu:4", "use --gpus-per-node"),
        ("array=1-4", "jobs of their own"),
        ("no-kill", "use --spares N"),
        ("-p x", "not KEY"),
        ("p=x", "not KEY"),
        ("comment=", "empty value"),
        ("UPPER=x", "not KEY"),
    ],
)
def test_extra_options_that_are_ours_or_malformed_are_refused(item, message):
    with pytest.raises(UsageError, match=message):
        job(sbatch=(item,))


def test_extra_options_reach_the_header():
    assert ("exclusive", None) in job(sbatch=("exclusive", "comment=a=b")).header
    assert ("comment", "a=b") in job(sbatch=("exclusive", "comment=a=b")).header
    assert ("profile", "task") in job(sbatch=("profile=task",)).header, "sbatch has an option of that name, too"


@pytest.mark.parametrize(
    ("item", "message"),
    [
        *((item, "--env") for item in ("1A=x", "A B=x", "=x", "SLURM_PROCID=0", "RANK=0", "MASTER_ADDR=x", "A=a\0b")),
        ("IFS=1", "belongs to the shell"),
        ("UID=1", "belongs to the shell"),
        ("A=\udcff", "not UTF-8 text; give A alone"),
    ],
)
def test_a_variable_that_no_rank_could_have_and_a_value_that_no_record_can_hold_are_refused(item, message):
    with pytest.raises(UsageError, match=message):
        job(env=(item,))


@pytest.mark.parametrize("line", ["export A=1 \\", "x \\\\\\"])
def test_a_set_up_line_that_swallows_the_next_is_refused(line):
    with pytest.raises(UsageError, match="joins it to the next line"):
        job(setup=(line,))
    job(setup=("ends in two \\\\",))


@pytest.mark.parametrize("ports", ["80-90", "30000-20000", "20000-70000"])
def test_a_port_range_that_is_none_is_refused(ports):
    with pytest.raises(UsageError, match="--port-range"):
        job(port_range=ports)


def test_the_header_says_what_slurm_may_do_at_the_end():
    assert job().header[-3:] == (("open-mode", "append"), ("requeue", None), ("signal", "USR2@120"))
    assert ("no-requeue", None) in job(requeue=False).header
    assert ("hold", None) in job(hold=True).header


@pytest.mark.parametrize("values", [{"sbatch": ("requeue=expedite", "nice")}, {"expedite": True, "sbatch": ("nice",)}])
def test_an_expedited_requeue_is_asked_for_once(values):
    assert job(**values).header[-4:] == (
        *(("open-mode", "append"), ("requeue", "expedite"), ("signal", "USR2@120"), ("nice", None)),
    )
    without = job(**values, requeue=False)
    assert ("no-requeue", None) in without.header
    assert not without.is_expedited


@pytest.mark.parametrize("item", ["requeue", "requeue=1", "requeue=expedited"])
def test_every_other_requeue_of_sbatch_is_an_option_here(item):
    with pytest.raises(UsageError, match="slurmddp has an option for this, --requeue"):
        job(sbatch=(item,))


def test_nodes_that_something_speaks_against_are_left_out_beside_the_users_own():
    assert ("exclude", "n1,n7,n8") in job(exclude="n1", avoided=("n7", "n8")).header
    assert ("exclude", "n7") in job(avoided=("n7",)).header


def test_options_of_the_network_are_variables_that_the_users_own_come_after():
    spec = job(interface="ib0", env=("NCCL_SOCKET_IFNAME=ib1", "KEY"))
    network = ("NCCL_SOCKET_IFNAME=ib0", "GLOO_SOCKET_IFNAME=ib0")
    assert spec.variables == (*network, "NCCL_SOCKET_IFNAME=ib1", "KEY")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"resume_args": "--x"}, "the bundled worker resumes by itself"),
        ({"resume_args": "'x", "command": ("t.py",)}, "No closing quotation"),
        ({"resume_args": "--from {ckpt}", "command": ("t.py",)}, "{ckpt} is not known; {checkpoint} is"),
        ({"resume_args": "x={checkpoint}", "command": ("t.py",)}, "needs --checkpoints"),
        ({"resume_args": "--x", "command": ("t.py",), "launcher": "manual"}, "--resume-args with --launcher manual"),
        ({"snapshot": True, "launcher": "manual"}, "--snapshot with --launcher manual"),
    ],
)
def test_arguments_to_resume_that_cannot_be_meant_are_refused(values, message):
    with pytest.raises(UsageError, match=message):
        job(**values)


@pytest.mark.parametrize("limit", ["infinite", "unlimited", "UNLIMITED", "24855-0"])
def test_a_time_limit_may_be_none_in_any_case_or_68_years(limit):
    assert ("time", limit) in job(time=limit).header


@pytest.mark.parametrize("limit", ["24855-4", "9" * 5000, "99999999999:00"])
def test_a_longer_time_limit_is_refused(limit):
    with pytest.raises(UsageError, match="is too long; give at most 24855 days, or UNLIMITED"):
        job(time=limit)


def test_an_executable_resumes_with_its_arguments_replaced():
    spec = job(no_python=True, command=("./t", "--a=1"), resume_args="--a=2 'b c'")
    assert spec.resumed_program == ("--no-python", "./t", "--a=2", "b c")


def test_spares_are_nodes_of_the_allocation_that_survives_a_lost_node():
    """The ranks are those of --nodes."""
    spec = job(nodes=2, gpus_per_node="4", spares=1)
    assert (spec.world_size, spec.allocated_nodes) == (8, 3)
    header = dict(spec.header)
    assert (header["nodes"], header["ntasks-per-node"], header["gpus-per-node"]) == ("3", "4", "4")
    assert "no-kill" in header and "no-kill" not in dict(job(nodes=3).header)
    assert dict(job(nodes=2).header)["nodes"] == "2"


def test_spares_need_a_script_of_ours():
    with pytest.raises(UsageError, match=r"--spares with --launcher manual, which makes no batch script; leave it out"):
        job(spares=1, launcher="manual")


def test_spares_are_refused_for_a_batch_script_of_ones_own():
    script = check_batch_script("own.sh", b"#!/bin/bash\n#SBATCH -N 2\nsrun ./t\n")
    given = Given("1", "--spares")
    message = "--spares: 'own.sh' is a batch script, whose own launch cannot be told which nodes to use; leave it out"
    with pytest.raises(UsageError, match=message):
        merge_options(script, {}, {}, {"spares": given})
    assert "spares" not in merge_options(script, {"spares": given}, {}, {}), "a configuration's is left out"


@pytest.mark.parametrize("raw", ["-1", "x", "1.5", "10000"])
def test_a_number_of_spares_is_whole(raw):
    with pytest.raises(UsageError, match=f"spares: '{raw}' is not a whole number, 0 to 9999"):
        convert(JOB_FIELDS["spares"], raw, "spares")

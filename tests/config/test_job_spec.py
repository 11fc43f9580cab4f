"""A JobSpec that exists is right by itself; a wrong one says in one line what is allowed."""

import pytest

from slurmddp.config.job_spec import JOB_FIELDS, JobSpec
from slurmddp.config.option_types import convert
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

"""Which variables say who a rank is, and what torch and trackers are told."""

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from slurmddp.errors import RankError
from slurmddp.runs.layout import RunDir
from slurmddp.runtime.launch.rank import Rank, export, export_ids, read_rank, record_mlflow_run

HEAD = {"MASTER_ADDR": "n1", "MASTER_PORT": "20000", "SLURMDDP_STORE_PORT": "20001"}
STEP = {
    "SLURM_JOB_ID": "17",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "9",
    "SLURM_LOCALID": "1",
    "SLURM_NTASKS": "16",
    "SLURM_NODEID": "1",
    "SLURM_STEP_TASKS_PER_NODE": "8(x2)",
    "SLURMD_NODENAME": "n2",
}
SRUN = {**HEAD, **STEP, "SLURMDDP_STARTED_BY": "srun"}
TORCHRUN = {
    **HEAD,
    "RANK": "3",
    "LOCAL_RANK": "1",
    "WORLD_SIZE": "4",
    "LOCAL_WORLD_SIZE": "2",
    "GROUP_RANK": "1",
    "TORCHELASTIC_RUN_ID": "r",
    "TORCHELASTIC_RESTART_COUNT": "2",
    "TORCHELASTIC_USE_AGENT_STORE": "True",
}
MPI = {
    **HEAD,
    "OMPI_COMM_WORLD_RANK": "2",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "0",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
}


def numbers(rank: Rank) -> tuple[int, ...]:
    return rank.rank, rank.local_rank, rank.world_size, rank.local_world_size, rank.node_rank


def test_srun_tells_by_slurms_variables_and_mpi_in_blocks():
    rank = read_rank(SRUN)
    assert (numbers(rank), numbers(read_rank(MPI))) == ((9, 1, 16, 8, 1), (2, 0, 4, 2, 1))
    assert (rank.host, rank.launcher, rank.nodes, rank.is_main) == ("n2", "srun", 2, False)
    assert (rank.master_addr, rank.master_port, rank.store_port) == ("n1", 20000, 20001)


def test_the_ranks_of_a_node_are_read_from_the_step_or_in_equal_shares():
    uneven = {**SRUN, "SLURM_STEP_TASKS_PER_NODE": "8,4(x2)", "SLURM_PROCID": "15", "SLURM_NODEID": "2"}
    assert read_rank(uneven).local_world_size == 4
    equal = {name: value for name, value in SRUN.items() if name != "SLURM_STEP_TASKS_PER_NODE"}
    assert read_rank({**equal, "SLURM_NNODES": "2"}).local_world_size == 8


def test_the_named_launcher_alone_speaks():
    """An agent's SLURM_PROCID says nothing about its workers, and a leaked RANK nothing under srun."""
    assert read_rank({**SRUN, **TORCHRUN, "SLURMDDP_STARTED_BY": "srun"}).rank == 9
    assert read_rank({**SRUN, **TORCHRUN, "SLURMDDP_STARTED_BY": "torchrun"}).rank == 3
    assert read_rank({**SRUN, **TORCHRUN, "SLURMDDP_STARTED_BY": "fork"}).launcher == "fork"


@pytest.mark.parametrize(
    ("environment", "launcher"),
    [
        ({**HEAD, **STEP, **TORCHRUN}, "torchrun"),
        ({**HEAD, **STEP, **MPI}, "srun"),
        (MPI, "mpi"),
        ({}, "single"),
        ({"SLURM_JOB_ID": "17", "SLURM_NTASKS": "1"}, "single"),
        ({"SLURM_STEP_ID": "0", "SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, "single"),
    ],
)
def test_without_a_named_launcher_the_variables_are_looked_at(environment, launcher):
    assert read_rank(environment).launcher == launcher


def test_a_process_by_hand_is_alone_with_a_free_port():
    rank = read_rank({})
    assert numbers(rank) == (0, 0, 1, 1, 0)
    assert rank.master_addr == "127.0.0.1"
    assert 0 < rank.master_port < 65535
    assert rank.run_dir is None


def test_nodes_are_numbered_in_the_order_of_the_ranks():
    """With a topology, Slurm 26.05 gives the first ranks to a node that SLURM_NODEID does not number 0."""
    reversed_nodes = {"SLURMDDP_HOSTS": "n3 n2 n1", "SLURM_NODEID": "2", "SLURMD_NODENAME": "n3"}
    assert (
        read_rank({**SRUN, **reversed_nodes, "SLURM_PROCID": "1", "SLURM_STEP_TASKS_PER_NODE": "8(x3)"}).node_rank == 0
    )
    own_step = {**TORCHRUN, **STEP, **reversed_nodes, "SLURMDDP_STARTED_BY": "torchrun", "SLURMDDP_JOB_ID": "17"}
    assert numbers(read_rank({**own_step, "SLURM_JOB_ID": "17"})) == (1, 1, 4, 2, 0)


def test_the_run_comes_from_the_batch_script():
    rank = read_rank(
        {
            **SRUN,
            "SLURMDDP_RUN_DIR": "/runs/a",
            "SLURMDDP_JOB_ID": "17_3",
            "SLURMDDP_ATTEMPT": "2.1",
            "SLURMDDP_HOSTS": "n1 n2",
        }
    )
    assert rank.run_dir == RunDir(Path("/runs/a")) and rank.run_dir.checkpoints == Path("/runs/a/checkpoints")
    another = read_rank({**SRUN, "SLURMDDP_RUN_DIR": "/runs/a", "SLURMDDP_TRAINING": "checkpoints-1"})
    assert another.run_dir and another.run_dir.checkpoints == Path("/runs/a/checkpoints-1")
    assert (rank.job, rank.attempt, rank.restarts) == ("17_3", "2.1", 1)
    assert [rank.host_of(number) for number in (0, 7, 8, 15, 16)] == ["n1", "n1", "n2", "n2", ""]


def test_the_store_is_beside_the_master_port_or_the_agents():
    without = {key: value for key, value in SRUN.items() if key != "SLURMDDP_STORE_PORT"}
    assert read_rank(without).store_port == 20001
    without = {key: value for key, value in TORCHRUN.items() if key != "SLURMDDP_STORE_PORT"}
    rank = read_rank(without)
    assert (rank.store_port, rank.agent_store, rank.restarts) == (20000, True, 2)
    assert not read_rank(TORCHRUN).agent_store


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"SLURM_STEP_ID": None}, "not started by srun: SLURM_STEP_ID is not set; start it with srun"),
        ({"SLURM_PROCID": None}, "SLURM_PROCID is not set; start it with srun"),
        ({"SLURM_PROCID": "16"}, "rank 16 is not below the world size 16"),
        ({"SLURM_PROCID": "-1"}, "SLURM_PROCID='-1' is not a whole number, 0 or more"),
        ({"SLURM_PROCID": "٣"}, "is not a whole number"),
        ({"SLURM_NTASKS": "0"}, "SLURM_NTASKS='0' is not a whole number, 1 or more"),
        ({"SLURM_LOCALID": "8"}, "local rank 8 is not below the local world size 8"),
        ({"SLURM_NODEID": "2"}, "SLURM_NODEID=2 is not below the 2 nodes of '8(x2)'"),
        ({"SLURM_STEP_TASKS_PER_NODE": "8x2"}, "SLURM_STEP_TASKS_PER_NODE='8x2' is not of the form"),
        ({"SLURM_NTASKS": "4", "SLURM_PROCID": "1"}, "local world size 8 is more than the world size 4"),
        ({"MASTER_ADDR": ""}, "MASTER_ADDR is not set"),
        (
            {"MASTER_PORT": None},
            "MASTER_PORT is not set; the batch script of `slurmddp submit` sets it: use that, or `slurmddp run`",
        ),
        ({"MASTER_PORT": "65535"}, "MASTER_PORT=65535 is not a port"),
        ({"MASTER_PORT": "x"}, "MASTER_PORT='x' is not a whole number"),
    ],
)
def test_what_is_wrong_is_said_with_variable_and_value(changes, message):
    environment = {key: value for key, value in {**SRUN, **changes}.items() if value is not None}
    with pytest.raises(RankError) as caught:
        read_rank(environment)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_allocation_without_a_step_is_refused_at_once():
    with pytest.raises(RankError, match="not started by srun: this allocation has SLURM_NTASKS=4 tasks"):
        read_rank({"SLURM_JOB_ID": "17", "SLURM_NTASKS": "4", "SLURM_PROCID": "0"})


def test_torchs_names_are_exported_and_leaked_ones_unset():
    run = {"SLURMDDP_RUN_DIR": "/runs/a", "SLURMDDP_JOB_ID": "17", "SLURMDDP_ATTEMPT": "0.1"}
    environment = {**SRUN, **run, "OMPI_COMM_WORLD_RANK": "5", "TORCHELASTIC_USE_AGENT_STORE": "True", "RANK": "7"}
    export(read_rank(environment), environment)
    exported = {
        "RANK": "9",
        "LOCAL_RANK": "1",
        "WORLD_SIZE": "16",
        "LOCAL_WORLD_SIZE": "8",
        "GROUP_RANK": "1",
        "GROUP_WORLD_SIZE": "2",
        "ROLE_RANK": "9",
        "ROLE_WORLD_SIZE": "16",
        "ROLE_NAME": "default",
        "MASTER_ADDR": "n1",
        "MASTER_PORT": "20000",
        "TORCHELASTIC_RUN_ID": "17",
        "TORCHELASTIC_RESTART_COUNT": "1",
        "TORCHELASTIC_MAX_RESTARTS": "1",
        "TORCHELASTIC_ERROR_FILE": "/runs/a/logs/17/0.1/9.error.json",
    }
    assert {name: environment.get(name) for name in exported} == exported
    assert "OMPI_COMM_WORLD_RANK" not in environment
    assert "TORCHELASTIC_USE_AGENT_STORE" not in environment
    assert environment["SLURM_PROCID"] == "9"


def test_under_torchrun_its_own_names_stay_and_slurms_task_is_unset():
    environment = {**STEP, **TORCHRUN, "TORCHELASTIC_ERROR_FILE": "/tmp/agent.json", "SLURMDDP_STARTED_BY": "torchrun"}  # noqa: S108
    export(read_rank(environment), environment)
    assert "SLURM_PROCID" not in environment
    assert environment["TORCHELASTIC_RUN_ID"] == "r"
    assert environment["TORCHELASTIC_USE_AGENT_STORE"] == "True"
    assert environment["TORCHELASTIC_ERROR_FILE"] == "/tmp/agent.json"  # noqa: S108


def test_ranks_of_an_agent_in_the_jobs_own_step_are_numbered_by_node():
    """The agents' own numbers follow the nodes' names as text, n10 before n2."""
    step = {
        **SRUN,
        **TORCHRUN,
        "SLURMDDP_STARTED_BY": "torchrun",
        "SLURMDDP_JOB_ID": "17_3",
        "SLURM_ARRAY_JOB_ID": "17",
    }
    swapped = step | {"RANK": "1", "GROUP_RANK": "0", "SLURM_JOB_ID": "20"}
    rank = read_rank(swapped)
    assert numbers(rank) == (3, 1, 4, 2, 1)
    assert (rank.host, rank.under_srun) == ("n2", True)
    environment = dict(swapped)
    export(rank, environment)
    assert (environment["RANK"], environment["GROUP_RANK"], environment["ROLE_RANK"]) == ("3", "1", "3")
    names = ("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS", "SLURM_STEP_TASKS_PER_NODE")
    assert [environment[name] for name in names] == ["3", "1", "4", "2(x2)"], "ignite reads them in every Slurm job"


def test_an_agent_started_by_hand_inside_some_step_keeps_its_numbers():
    rank = read_rank({**SRUN, **TORCHRUN, "RANK": "1", "GROUP_RANK": "0", "SLURMDDP_JOB_ID": "manual"})
    assert (rank.rank, rank.node_rank, rank.under_srun) == (9, 1, True), "the launcher is srun"
    by_hand = {**SRUN, **TORCHRUN, "SLURMDDP_STARTED_BY": "torchrun", "RANK": "1", "GROUP_RANK": "0"}
    rank = read_rank(by_hand | {"SLURMDDP_JOB_ID": "manual"})
    assert (rank.rank, rank.node_rank, rank.under_srun) == (1, 0, False)


def test_the_file_to_meet_by_is_an_absolute_path():
    rank = read_rank({**SRUN, "SLURMDDP_RENDEZVOUS_FILE": "file:///a b/meeting"})
    assert (rank.init_file, read_rank(SRUN).init_file) == (Path("/a b/meeting"), None)


@pytest.fixture
def tracked(tmp_path):
    return replace(read_rank({}), run_dir=RunDir(tmp_path))


def exported(rank: Rank, **given: str) -> dict[str, str]:
    environment = dict(given)
    export_ids(rank, environment)
    return environment


def test_all_attempts_of_a_run_have_one_id_and_each_run_its_own(tracked, tmp_path):
    first = exported(tracked)
    assert (
        first == exported(tracked) == {"WANDB_RUN_ID": tracked.run_dir.tracker_id.read_text(), "WANDB_RESUME": "allow"}
    )
    (tmp_path / "other").mkdir()
    assert exported(replace(tracked, run_dir=RunDir(tmp_path / "other")))["WANDB_RUN_ID"] != first["WANDB_RUN_ID"]


@pytest.mark.parametrize(
    "given", [{"WANDB_RUN_ID": "mine"}, {"WANDB_RESUME": "never"}, {"SLURMDDP_SKIP_TRACKER_IDS": "1"}]
)
def test_what_the_user_sets_stays(tracked, given):
    assert exported(tracked, **given) == given


def test_other_ranks_and_processes_without_a_run_get_none(tracked):
    assert exported(replace(tracked, rank=1, world_size=2)) == exported(replace(tracked, run_dir=None)) == {}


def test_a_folder_that_cannot_be_written_to_ends_no_training(tracked, tmp_path):
    assert exported(replace(tracked, run_dir=RunDir(tmp_path / "missing"))) == {}


def test_the_first_run_in_mlflow_goes_on_in_the_next_attempt(tracked, monkeypatch):
    for number in ("1", "2"):
        active = SimpleNamespace(info=SimpleNamespace(run_id=f"run-{number}"))
        monkeypatch.setitem(sys.modules, "mlflow", SimpleNamespace(active_run=lambda active=active: active))
        record_mlflow_run(tracked)
    assert exported(tracked)["MLFLOW_RUN_ID"] == "run-1"
    assert exported(tracked, MLFLOW_RUN_ID="mine")["MLFLOW_RUN_ID"] == "mine"


@pytest.mark.parametrize("mlflow", [None, SimpleNamespace(), SimpleNamespace(active_run=lambda: None)])
def test_without_a_run_in_mlflow_nothing_is_recorded(tracked, monkeypatch, mlflow):
    monkeypatch.setitem(sys.modules, "mlflow", mlflow)
    record_mlflow_run(tracked)
    assert "MLFLOW_RUN_ID" not in exported(tracked)

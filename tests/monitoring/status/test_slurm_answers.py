"""A number that Slurm has given again is not taken for the run's job."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from slurmddp.monitoring.status import slurm_answers
from slurmddp.monitoring.status.slurm_answers import RequestedJob
from slurmddp.runs.layout import RunDir
from slurmddp.slurm.job_info import JobInfo

THEN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
WANTED = RequestedJob(name="mnist", job_id="17", run=RunDir(Path("jobs/mnist")), submitted=THEN)
ROW = JobInfo(job_id="17", state="COMPLETED", source="sacct", name="mnist", submitted=THEN + timedelta(seconds=1))


@pytest.mark.parametrize("change", [{}, {"name": ""}, {"submitted": None}], ids=["same", "no name", "no time"])
def test_a_job_of_the_same_name_and_time_is_it(change):
    assert slurm_answers.matching_rows(WANTED, [ROW._replace(**change)]) == [ROW._replace(**change)]


@pytest.mark.parametrize(
    "change",
    [{"name": "other"}, {"submitted": THEN - timedelta(hours=1)}, {"job_id": "18"}, {"job_id": "170"}],
    ids=["name", "time", "number", "beginning"],
)
def test_another_job_is_not_unless_it_is_asked_for_by_its_number_alone(change):
    other = ROW._replace(**change)
    assert slurm_answers.matching_rows(WANTED, [other]) == []
    assert slurm_answers.matching_rows(RequestedJob(job_id=other.job_id), [other]) == [other]


def test_what_comes_after_a_job_of_another_name_is_another_s():
    later = ROW._replace(submitted=THEN + timedelta(days=9))
    other = ROW._replace(name="other", submitted=THEN + timedelta(days=5))
    assert slurm_answers.matching_rows(WANTED, [ROW, other, later]) == [ROW]


def test_a_job_that_came_back_is_its_last_row():
    back = ROW._replace(state="RUNNING", submitted=THEN + timedelta(hours=1))
    rows = [ROW._replace(state="REQUEUED"), back]
    assert slurm_answers.newest_rows(slurm_answers.matching_rows(WANTED, rows)) == [back]


def test_a_task_is_found_among_those_that_wait_together():
    waiting, own = ROW._replace(job_id="17_[1-3,7%2]"), ROW._replace(job_id="17_0")
    assert slurm_answers.matching_rows(replace(WANTED, job_id="17_3"), [waiting, own]) == [waiting]
    assert slurm_answers.matching_rows(replace(WANTED, job_id="17_0"), [waiting, own]) == [own]
    assert slurm_answers.matching_rows(replace(WANTED, job_id="17_9"), [waiting, own]) == []
    assert slurm_answers.matching_rows(WANTED, [waiting, own]) == [waiting, own]


@pytest.mark.parametrize(
    ("job_id", "tasks"),
    [
        ("17_[1-3,7%2]", {1, 2, 3, 7}),
        ("17_[4]", {4}),
        ("17_[0-8:4]", {0, 4, 8}),
        ("17_[1,3,5,...]", None),
        ("17_[0-3:0]", None),
        ("17_3", None),
    ],
)
def test_the_tasks_of_an_array(job_id, tasks):
    assert slurm_answers.task_indices(job_id) == tasks


def test_tasks_that_have_rows_of_their_own_do_not_wait_any_more():
    rows = [ROW._replace(job_id=job_id) for job_id in ("17_2", "17_3", "17_[2-3%1]")]
    assert slurm_answers.newest_rows(rows) == rows[:2]
    assert slurm_answers.newest_rows(rows[1:]) == rows[1:]


def test_a_task_with_a_row_of_its_own_is_none_of_those_whose_list_slurm_cuts_short():
    together = ROW._replace(job_id="17_[0-1,9-11,...]", state="PENDING")
    own = [ROW._replace(job_id="17_3", state="RUNNING"), ROW._replace(job_id="18_3")]
    nearest = slurm_answers.RowIndex([together, *own])
    assert list(nearest.rows_of(RequestedJob(job_id="17_3"))) == [own[0]]
    assert list(nearest.rows_of(RequestedJob(job_id="17_9"))) == [together]
    assert list(nearest.rows_of(RequestedJob(job_id="17"))) == [together, own[0]]
    assert list(nearest.rows_of(RequestedJob(job_id="19_3"))) == []

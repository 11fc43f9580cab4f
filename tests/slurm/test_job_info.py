"""The parts of a job's id."""

import pytest

from slurmddp.slurm.job_info import JobRef, is_job_id


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("17", ("17", None, False, False)),
        ("17_3", ("17", 3, False, False)),
        ("17_[4-9%2]", ("17", None, True, False)),
        ("17+1", ("17", None, False, False)),
        ("local-20261122-140432-99", ("local-20261122-140432-99", None, False, True)),
        ("", ("", None, False, False)),
    ],
)
def test_an_id_is_read_into_its_parts_and_written_again(text, parts):
    job = JobRef.parse(text)
    assert str(job) == text
    assert (job.array_id, job.task_index, job.is_task_list, job.is_local) == parts
    assert job.is_task == (parts[1] is not None)


@pytest.mark.parametrize(("text", "result"), [("17", True), ("17_3", True), ("17_[3]", False), ("local-1", False)])
def test_what_a_person_may_type_as_a_job(text, result):
    assert is_job_id(text) is result

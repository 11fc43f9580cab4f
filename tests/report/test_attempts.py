"""How far an attempt had got at which time."""

import pytest

from slurmddp.report.attempts import build_progress


def attempt(story):
    return story.history.attempts[0]


def test_steps_between_two_known_times_count_as_equally_long(story):
    story.at(0, "start").at(10, "loop", step=100).at(20, "metrics", step=110).at(40, "metrics", step=120)
    found = build_progress(attempt(story))
    assert (found.began, found.first, found.last, found.last_time) == (10, 100, 120, 40)
    assert [found.time_of(step) for step in (90, 100, 105, 110, 115, 120, 999)] == [10, 10, 15, 20, 30, 40, 40]


def test_a_checkpoint_tells_when_its_step_was_finished(story):
    story.at(0, "loop", step=0).save(30, 10, held_s=2, write_s=8)
    found = build_progress(attempt(story))
    assert found.time_of(10) == 20 and (found.stalls[0].begin, found.stalls[0].end) == (20, 22)
    assert (found.saved, found.last_time) == (10, 22)


@pytest.mark.parametrize("strange", ["nan", "inf", -3, None])
def test_a_strange_time_of_a_checkpoint_counts_as_none(story, strange):
    story.at(0, "loop", step=0).at(9, "checkpoint", step=10, held_s=strange, write_s=strange)
    assert build_progress(attempt(story)).time_of(10) == 9


def test_a_step_that_falls_is_left_out(story):
    story.at(0, "loop", step=0).at(5, "metrics", step=10).at(6, "metrics", step=3).at(7, "metrics", step=12)
    assert build_progress(attempt(story)).points == ((0, 0), (5, 10), (7, 12))


def test_a_program_without_steps_has_none(story):
    assert build_progress(attempt(story.at(0, "start").at(9, "end", status=0))) is None

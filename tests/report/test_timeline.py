"""What each moment of a run was spent on: histories made by hand, with the seconds that must come out."""

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from timelines import build

from slurmddp.monitoring.status import query_jobs
from slurmddp.report.attempts import ALLOCATED, build_progress
from slurmddp.report.figures import collect_figures, compute_figures
from slurmddp.runs.history import Event, History
from slurmddp.runs.lookup import find_all_jobs
from slurmddp.slurm.job_info import JobInfo


def known_as(state, **times) -> dict[str, JobInfo]:
    """Return what Slurm says of job 7; times in seconds since 1970."""
    moments = {key: datetime.fromtimestamp(at).astimezone() for key, at in times.items() if at is not None}
    return {"7": JobInfo(job_id="7", state=state, source="sacct", **moments)}


def spent(timeline):
    return {kind: pytest.approx(seconds) for kind, seconds in compute_figures(timeline).seconds.items()}


def submitted(**times):
    return {job.removeprefix("j"): float(time) for job, time in times.items()}


def begins(time, job="7", attempt="0.0", allocated=None):
    fields = {"nodes": "n[1-2]", "log_offset": 0, "allocated": allocated}
    return Event(float(time), "attempt_start", job, attempt, fields)


def started(story, *starts):
    return History((*starts, *story.history.events))


def test_a_run_without_trouble(story):
    story.at(20, "start", world_size=4).at(30, "loop", step=0, total=100)
    story.save(62, 50, held_s=2).save(94, 100, held_s=1, write_s=3).at(96, "end", status=0, reason="done")
    found = build(started(story, begins(10.0)), submitted(j7=0), now=999)
    assert compute_figures(found).seconds == spent(found) == {
        "queued": 10, "startup": 20, "useful": 58, "held": 3, "ending": 5
    }  # fmt: skip
    assert (found.begin, found.end, found.attempts[0].outcome.kind) == (0, 96, "done")
    figure = compute_figures(found)
    assert (figure.wall_s, figure.allocated_s) == (96, 86)
    assert (figure.goodput, figure.ettr) == (58 / 86, 58 / 96)
    assert (figure.steps_taken, figure.steps_kept, figure.steps_repeated) == (100, 100, 0)


def test_set_up_belongs_to_the_attempt_and_a_restart_has_none(story):
    crashed_once(story).save(152, 100).at(153, "end", status=0, reason="done")
    starts = begins(9.0, allocated=4.0), begins(60.0, attempt="0.1", allocated=4.0)
    first, second = build(started(story, *starts), submitted(j7=0), now=999).attempts
    assert (first.begin, second.begin) == (4.0, 60.0)


def crashed_once(story):
    story.at(10, "start").at(20, "loop", step=0, total=100).save(40, 20)
    story.at(50, "metrics", step=30, total=100, values={}).at(60, "restart", status=76, reason="rank 1: lost")
    return story.on("7", "0.1").at(65, "start").at(70, "resume", step=20).at(72, "loop", step=20, total=100)


def test_what_a_crash_loses_is_lost_and_done_again(story):
    crashed_once(story).save(152, 100).at(153, "end", status=0, reason="done")
    found = build(started(story, begins(0.0), begins(60.0, attempt="0.1")), submitted(j7=0), now=999)
    first, second = found.attempts
    assert (first.outcome.kind, first.kept, first.progress.last) == ("crashed", 20, 30)
    assert [(span.kind, span.begin, span.end) for span in first.spans] == [
        ("startup", 0, 20), ("useful", 20, 40), ("lost", 40, 60)
    ]  # fmt: skip
    assert [(span.kind, span.begin, span.end) for span in second.spans] == [
        ("startup", 60, 72), ("useful", 72, 152), ("ending", 152, 153)
    ]  # fmt: skip
    figure = compute_figures(found)
    assert (figure.steps_taken, figure.steps_kept, figure.steps_repeated, figure.restarts) == (110, 100, 10, 1)
    assert figure.goodput == 100 / 153 == figure.ettr


def test_steps_after_the_last_metric_that_survivors_saved_are_not_lost(story):
    """The next attempt begins where they saved: the attempt before took those steps, at its pace."""
    story.at(10, "start").at(20, "loop", step=0, total=100).at(60, "metrics", step=40, total=100, values={})
    story.at(90, "restart", status=76, reason="rank 1: lost")
    story.on("7", "0.1").at(95, "start").at(99, "checkpoint", step=55).at(100, "loop", step=55, total=100)
    story.save(145, 100).at(146, "end", status=0, reason="done")
    found = build(started(story, begins(0.0), begins(90.0, attempt="0.1")), submitted(j7=0), now=999)
    first, second = found.attempts
    assert (first.progress.last, first.kept, second.progress.first) == (55, 55, 55)
    assert [(span.kind, span.begin, span.end) for span in first.spans] == [
        ("startup", 0, 20), ("useful", 20, 75), ("lost", 75, 90)
    ]  # fmt: skip
    figure = compute_figures(found)
    assert (figure.steps_taken, figure.steps_kept, figure.steps_repeated) == (100, 100, 0)


def test_steps_that_survivors_saved_before_the_first_metric_end_with_their_attempt(story):
    story.at(10, "start").at(20, "loop", step=0, total=100).at(90, "restart", status=76, reason="rank 1: lost")
    story.on("7", "0.1").at(100, "loop", step=7, total=100).at(193, "end", status=0, reason="done")
    first, _ = build(started(story, begins(0.0), begins(90.0, attempt="0.1")), submitted(j7=0), now=999).attempts
    assert (first.kept, first.spent("useful"), first.spent("lost")) == (7, 70, 0)


def test_what_each_interruption_cost(story):
    crashed_once(story).at(130, "metrics", step=80, total=100, values={}).at(140, "requeue", reason="preempted")
    story.on("7", "1.0").at(200, "start").at(210, "loop", step=60, total=100).at(220, "end", status=77, reason="x")
    starts = begins(0.0), begins(60.0, attempt="0.1"), begins(190.0, attempt="1.0")
    found = build(started(story, *starts), submitted(j7=0), now=999)
    assert [
        (one.name, one.outcome.kind, one.progress.last - one.kept, one.spent("lost"), back_s)
        for one, back_s in found.interruptions
    ] == [
        ("0.0", "crashed", 10, 20, 12),
        ("0.1", "stopped", 20, pytest.approx(58 / 3), 70),
        ("1.0", "failed", 0, 10, None),
    ]


def test_of_a_program_without_steps_an_interruption_ends_when_the_ranks_meet(story):
    story.at(10, "start").at(50, "restart", status=76, reason="lost")
    story.on("7", "0.1").at(65, "start").at(90, "end", status=0)
    ((_, back_s),) = build(started(story, begins(0.0)), submitted(j7=0), now=999).interruptions
    assert back_s == 15


def test_of_a_run_that_failed_its_last_checkpoint_counts(story):
    crashed_once(story).save(112, 60).at(130, "metrics", step=80, total=100, values={})
    story.at(140, "end", status=77, reason="rank 0: ValueError")
    found = build(started(story, begins(0.0)), submitted(j7=0), now=999)
    assert (found.attempts[-1].outcome.kind, found.attempts[-1].kept) == ("failed", 60)
    assert found.attempts[-1].spans[-1].kind == "lost" and found.attempts[-1].spans[-1].seconds == 28
    assert compute_figures(found).steps_kept == 60


def test_of_a_run_that_goes_on_everything_counts_so_far(story):
    crashed_once(story).at(130, "metrics", step=80, total=100, values={})
    found = build(started(story, begins(0.0)), submitted(j7=0), known=known_as("RUNNING"), now=150)
    assert (found.attempts[-1].outcome.kind, found.end) == ("running", 150)
    assert found.attempts[-1].spans[-1].kind == "useful" and found.attempts[-1].spans[-1].end == 150


def stopped(story):
    story.at(10, "start").at(20, "loop", step=0, total=100).at(35, "notice", cause="SIGTERM", reason="preempted")
    return story.save(40, 20).at(41, "end", status=75, reason="told").at(42, "requeue", reason="preempted")


def test_a_requeue_waits_in_the_queue(story):
    stopped(story).on("7", "1.0").at(80, "start").at(85, "loop", step=20, total=100).save(165, 100)
    story.at(166, "end", status=0, reason="done")
    found = build(started(story, begins(0.0), begins(70.0, attempt="1.0")), submitted(j7=0), now=999)
    assert [(span.kind, span.seconds) for span in found.attempts[0].spans] == [
        ("startup", 20), ("useful", 20), ("ending", 2)
    ]  # fmt: skip
    assert [(span.kind, span.seconds) for span in found.attempts[1].before] == [("queued", 28)]
    assert compute_figures(found).goodput == 100 / (166 - 28)


def test_a_job_that_waits_for_its_next_start_is_in_the_queue_until_now(story):
    stopped(story)
    found = build(started(story, begins(0.0)), submitted(j7=0), known=known_as("PENDING"), now=100)
    assert [(span.kind, span.begin, span.end) for span in found.after] == [("queued", 42, 100)]
    assert found.end == 100 == compute_figures(found).wall_s


def test_between_two_jobs_there_is_no_job_until_the_second_is_submitted(story):
    stopped(story).events.pop()
    story.on("8", "0.0").at(200, "start").at(210, "loop", step=20, total=100).save(290, 100)
    story.at(290, "end", status=0)
    found = build(started(story, begins(0.0), begins(190.0, job="8")), submitted(j7=0, j8=100), now=999)
    assert [(span.kind, span.seconds) for span in found.attempts[1].before] == [("absent", 59), ("queued", 90)]


def test_a_chained_job_was_in_the_queue_all_along(story):
    stopped(story).events.pop()
    story.on("8", "0.0").at(60, "start").at(61, "end", status=0)
    found = build(started(story, begins(0.0), begins(50.0, job="8")), submitted(j7=0, j8=1), now=999)
    assert [(span.kind, span.seconds) for span in found.attempts[1].before] == [("queued", 9)]


def test_a_run_that_was_started_over_keeps_nothing_of_before(story):
    stopped(story).events.pop()
    story.on("8", "0.0").at(60, "start").at(70, "loop", step=0, total=50).save(120, 50).at(120, "end", status=0)
    found = build(started(story, begins(0.0), begins(50.0, job="8")), submitted(j7=0, j8=41), now=999)
    assert [attempt.kept for attempt in found.attempts] == [0, 50]
    assert compute_figures(found).seconds["lost"] == 20 and compute_figures(found).steps_repeated == 20


def test_an_attempt_that_goes_on_alone_ends_where_the_next_begins(story):
    story.at(10, "start").at(20, "loop", step=0, total=100).save(40, 20)
    story.at(300, "metrics", step=99, total=100, values={})
    story.on("7", "1.0").at(120, "start").at(130, "loop", step=20, total=100).save(210, 100).at(210, "end", status=0)
    found = build(started(story, begins(0.0), begins(100.0, attempt="1.0")), submitted(j7=0), now=999)
    assert (found.attempts[0].end, found.attempts[1].begin, found.end) == (100, 100, 210)
    assert compute_figures(found).wall_s == sum(compute_figures(found).seconds.values()) == 210


def test_a_program_that_tells_no_steps_has_no_goodput(story):
    story.at(10, "start").at(100, "end", status=0, reason="done")
    found = build(started(story, begins(4.0)), submitted(j7=0), now=999)
    assert compute_figures(found).seconds == {"queued": 4, "startup": 6, "unmeasured": 90}
    assert (compute_figures(found).goodput, compute_figures(found).ettr) == (None, None)


def test_an_attempt_that_never_came_to_its_first_step_was_all_startup(story):
    story.at(10, "start").at(15, "restart", status=76, reason="rank 1: lost")
    story.on("7", "0.1").at(20, "start").at(25, "loop", step=0, total=10).save(35, 10).at(35, "end", status=0)
    found = build(started(story, begins(0.0)), submitted(j7=0), now=999)
    assert compute_figures(found).seconds == {"startup": 25, "useful": 10}


def test_old_records_tell_the_first_step_by_the_checkpoint_or_the_meeting(story):
    story.at(10, "start").save(30, 20).at(31, "end", status=75, reason="told").at(31, "requeue", reason="told")
    story.on("7", "1.0").at(60, "start").at(65, "resume", step=20).save(85, 40).at(85, "end", status=0)
    found = build(started(story, begins(0.0), begins(50.0, attempt="1.0")), submitted(j7=0), now=999)
    assert [attempt.progress.began for attempt in found.attempts] == [10, 65]


def test_slurm_tells_when_the_last_start_got_its_nodes_and_when_it_ended(story):
    story.at(10, "start").at(20, "loop", step=0, total=100).save(40, 20)
    known = known_as("FAILED", started=3.0, ended=70.0)
    found = build(started(story, begins(8.0)), submitted(j7=0), known=known, now=999)
    assert (found.attempts[0].begin, found.attempts[0].end, found.attempts[0].outcome.kind) == (3, 70, "failed")


def test_a_start_of_which_only_the_supervisor_has_told(story):
    story.at(9, "attempt_end", status=77, reason="no such file").at(9, "job_end", status=77, reason="no such file")
    (attempt,) = build(started(story, begins(5.0)), submitted(j7=0), now=999).attempts
    assert (attempt.hosts, attempt.outcome.kind, attempt.outcome.reason, attempt.end) == (
        "n[1-2]",
        "failed",
        "no such file",
        9,
    )
    assert [span.kind for span in attempt.spans] == ["startup"]


@pytest.mark.parametrize(
    ("kind", "fields", "outcome"),
    [
        ("fenced", {"reason": "the run belongs to job 6"}, "fenced"),
        ("requeue", {"reason": "preempted; no step is started"}, "stopped"),
        ("job_end", {"status": 77, "reason": "X must be set where the job is submitted"}, "failed"),
        ("end", {"status": 76, "reason": "lost"}, "crashed"),
    ],
)
def test_how_an_attempt_ended_without_a_word_of_its_ranks(story, kind, fields, outcome):
    (attempt,) = build(story.at(9, kind, **fields).history, now=999).attempts
    assert (attempt.outcome.kind, attempt.outcome.reason) == (outcome, fields["reason"])


def test_the_supervisor_knows_better_than_rank_0_how_an_attempt_ended(story):
    story.at(8, "end", status=76, reason="lost").at(9, "attempt_end", status=77, reason="rank 1: boom")
    (attempt,) = build(story.at(9, "job_end", status=77, reason="rank 1: boom").history, now=999).attempts
    assert (attempt.outcome.kind, attempt.outcome.reason) == ("failed", "rank 1: boom")


def test_a_task_of_an_array_was_submitted_with_the_array(story):
    story.on("7_3", "0.0").at(30, "start").at(40, "end", status=0)
    found = build(started(story, begins(20.0, job="7_3")), submitted(j7=0), now=999)
    assert [(span.kind, span.seconds) for span in found.attempts[0].before] == [("queued", 20)]


def test_attempts_whose_clocks_disagree_stand_one_after_the_other(story):
    story.on("8", "0.0").at(0, "start").at(3, "restart").on("8", "0.1").at(0, "start").at(3, "start")
    story.on("7", "1.0").at(3, "start")
    found = build(story.history, known=known_as("UNKNOWN", started=2.0), now=9)
    assert [(attempt.begin, attempt.end) for attempt in found.attempts] == [(0, 0), (0, 2), (2, 3)]


def test_a_run_of_which_nothing_is_known(story):
    found = build(story.history, now=50)
    assert (found.begin, found.end, found.spans, compute_figures(found).goodput) == (50, 50, (), None)


def test_a_job_that_waits_for_its_first_start(story):
    found = build(story.history, submitted(j7=20), known=known_as("PENDING"), now=50)
    assert [(span.kind, span.seconds) for span in found.after] == [("queued", 30)]
    assert compute_figures(found).ettr is None


KINDS = [
    *("start", "loop", "resume", "metrics", "checkpoint", "notice", "restart", "requeue", "end", "attempt_start"),
    *("attempt_end", "fenced", "job_end"),
]
EVENTS = st.builds(
    Event,
    st.floats(0, 1000),
    st.sampled_from(KINDS),
    st.sampled_from(["7", "8"]),
    st.sampled_from(["0.0", "0.1", "1.0"]),
    st.dictionaries(
        st.sampled_from(["step", "status", "held_s", "write_s", "reason"]),
        st.integers(-5, 200) | st.sampled_from([0, 75, 76, 77, "nan", "inf", -(10**30), 10**18]),
    ),
)


@given(
    st.lists(EVENTS, max_size=25), st.sampled_from(["UNKNOWN", "RUNNING", "PENDING", "COMPLETED"]), st.floats(0, 1200)
)
def test_each_moment_of_any_history_is_spent_once(events, state, now):
    known = known_as(state, started=2.0, ended=900.0 if state == "COMPLETED" else None)
    found = build(History((begins(5.0), *events)), submitted(j7=0, j8=40), known=known, now=now)
    at = found.begin
    for span in found.spans:
        assert span.begin == pytest.approx(at, abs=1e-6) and span.end > span.begin
        at = span.end
    assert at == pytest.approx(found.end, abs=1e-6)
    figure = compute_figures(found)
    assert 0 <= (figure.goodput or 0) <= 1 and figure.steps_kept <= figure.steps_taken
    assert 0 <= figure.steps_repeated <= figure.steps_taken


def test_a_job_that_was_cancelled_while_it_ran_is_said_to_be(story):
    (attempt,) = build(story.at(0, "start").at(10, "cancel", by="ada").history, now=99).attempts
    assert (attempt.outcome.kind, attempt.end) == ("cancelled", 10)


def test_a_job_that_was_cancelled_in_the_queue_had_left_its_nodes_when_it_was_put_there(story):
    story.at(0, "start").at(10, "requeue", status=75, reason="preempted").at(3600, "cancel", by="ada")
    (attempt,) = build(story.history, now=9999).attempts
    assert (attempt.outcome.kind, attempt.end) == ("stopped", 10)


@pytest.mark.parametrize(
    ("names", "requeues"), [(["0.0", "1.0"], 1), (["0.0", "2.0"], 2), (["1.0"], 1), (["0.0", "0.1"], 0)]
)
def test_a_requeue_that_somebody_asked_for_is_counted_though_the_script_told_of_none(story, names, requeues):
    for number, name in enumerate(names):
        story.on("7", name).at(60 * number + 10, "start").at(60 * number + 20, "loop", step=0, total=100)
    starts = [begins(60.0 * number, attempt=name) for number, name in enumerate(names)]
    found = build(started(story, *starts), submitted(j7=0), now=200)
    assert (compute_figures(found).requeues, compute_figures(found).restarts) == (requeues, 0)


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


def test_a_clock_that_is_set_back_makes_no_time_negative(story):
    """The second attempt began, by its clock, an hour before the first."""
    story.at(3620, "start", world_size=4).at(3630, "loop", step=0, total=100).at(3650, "checkpoint", step=50)
    events = (begins(3609.0), *story.history.events, begins(60.0, attempt="0.1"))
    found = build(History(events), submitted(j7=3600), now=90)
    assert len(found.attempts) == 2
    assert all(span.seconds >= 0 for span in found.spans)
    assert all(seconds >= 0 for seconds in compute_figures(found).seconds.values())


def test_status_and_report_count_the_same_hours(recorded):
    statuses = query_jobs([find_all_jobs(recorded)], {"PATH": "/nowhere"}, now=2e9)
    figures = collect_figures(recorded, statuses, now=2e9)
    assert (statuses[-1].total_s, statuses[-1].node_hours) == (int(figures.allocated_s), figures.node_hours)
    assert figures.allocated_s == pytest.approx(
        sum(figures.seconds[kind] for kind in ALLOCATED if kind in figures.seconds)
    )

"""Slurm's states: one table, which also answers for a word that it does not list."""

import pytest

from slurmddp.slurm.states import STATES, find_state, has_ended, may_run, meaning_of, phase_of


@pytest.mark.parametrize(
    ("state", "phase", "holds", "ended", "may"),
    [
        ("PENDING", "queued", False, False, True),
        ("RUNNING", "running", True, False, True),
        ("SUSPENDED", "running", True, False, True),
        ("COMPLETING", "running", False, False, True),
        ("PREEMPTED", "failed", False, True, False),
        ("COMPLETED", "done", False, True, False),
        ("BRAND_NEW", "unknown", False, False, True),
        ("UNKNOWN", "unknown", False, False, False),
        ("", "unknown", False, False, False),
    ],
)
def test_what_a_state_says_of_a_job(state, phase, holds, ended, may):
    assert (phase_of(state), find_state(state).holds_nodes, has_ended(state), may_run(state)) == (
        phase,
        holds,
        ended,
        may,
    )


def test_a_state_in_words_names_the_job_in_its_commands():
    assert meaning_of("STOPPED", "17_3").endswith("`scancel -s CONT 17_3` lets it go on")
    assert {state for state in STATES if not meaning_of(state, "17")} == {"PENDING", "RUNNING", "COMPLETED"}
    assert meaning_of("BRAND_NEW", "17") == ""

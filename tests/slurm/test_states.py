"""Slurm's states: one table, which also answers for a word that it does not list."""

import pytest

from slurmddp.slurm.states import STATES, find_state, has_ended, may_run, outcome_of


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
    known = outcome_of(state).meaning.phase, find_state(state).holds_nodes
    assert (*known, has_ended(state), may_run(state)) == (phase, holds, ended, may)


def test_a_state_in_words_names_the_job_in_its_commands():
    assert find_state("STOPPED").meaning.format(job="17_3").endswith("`scancel -s CONT 17_3` lets it go on")
    assert {state for state in STATES if not STATES[state].meaning} == {"PENDING", "RUNNING", "COMPLETED"}
    assert find_state("BRAND_NEW").meaning == ""

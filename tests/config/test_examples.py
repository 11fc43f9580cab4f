"""Each example opens with what it shows, how it is run, and what a preemption does."""

import ast

import pytest

from slurmddp.config.examples import example_names, read_example


@pytest.mark.parametrize("name", example_names())
def test_an_example_is_short_and_says_how_it_is_run(name):
    text = read_example(name)
    opening = ast.get_docstring(ast.parse(text))
    assert 40 <= text.count("\n") <= 90
    assert f"slurmddp submit --nodes 2 --gpus-per-node 8 {name}.py " in opening
    assert f"slurmddp run --ntasks-per-node 2 {name}.py " in opening
    assert "At a preemption " in opening

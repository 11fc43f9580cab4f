"""`slurmddp doctor`: its table, and its exit status without a cluster."""

import json
import re

from command_line import SLURMDDP, on_a_terminal, typed

from slurmddp.cli.doctor import format_findings
from slurmddp.runs.findings import Finding


def test_the_table_fits_80_columns_and_carries_no_control_characters():
    long = Finding(
        check="preemption",
        level="warning",
        host="node\x1b[31m1",
        what="w" * 100 + " and many other words that go on and on, more than would fit into a line of eighty columns",
        why="why " * 30,
        advice="type " * 30,
    )
    lines = list(format_findings([long, Finding(check="x", level="ok", what="all well")]))
    assert all(len(line) <= 80 and line.isprintable() for line in lines)
    assert lines[0].startswith("warning  preemption  node\\x1b[31m1: w")
    assert any(line.startswith(" " * 21 + "-> type type") for line in lines)
    assert lines[-2:] == ["ok       x           all well", "2 findings: 1 ok, 0 notes, 1 warning, 0 errors"]


def test_without_slurm_the_other_checks_run_and_the_status_is_3(tmp_path):
    done = typed("doctor", "--json", "--", "--task", "linear", cwd=tmp_path)
    result = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (result["status"], "") and result["status"] == 3
    found = {each["check"]: each["level"] for each in result["findings"]}
    assert found["slurm"] == "error" and found["python"] == found["program"] == "ok"
    assert list(tmp_path.iterdir()) == []


def test_a_missing_script_is_an_error_of_the_job(tmp_path):
    done = typed("doctor", "train.py", cwd=tmp_path)
    assert done.returncode == 2
    assert "error    program     COMMAND: there is no file 'train.py'" in done.stdout


def test_without_colours_an_error_is_still_bold(tmp_path):
    _, shown = on_a_terminal(str(SLURMDDP), "doctor", "train.py", cwd=tmp_path, NO_COLOR="1", PATH="/nowhere")
    assert b"\x1b[1merror" in shown
    assert not re.search(rb"\x1b\[3\dm", shown)

"""Writes the table of docs/compatibility.md from the results of the tests with each version of Slurm.

make test SLURM=24.11 ARGS="--junitxml=24.11.xml"       # and the others
SLURMDDP_TESTS_SOAK=1 make test SLURM=24.11 ARGS="-o timeout=3600 --junitxml=24.11-survival.xml tests/test_survival.py"
python tests/support/compatibility.py *.xml             # of several files of one version, all tests count once
"""

import re
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

PAGE = Path(__file__).parents[2] / "docs" / "compatibility.md"
FEATURES = {
    "submit, status, logs, cancel of a job": r"test_jobs|monitoring|submission\.test_submit",
    "every launcher: srun, fork, torchrun, manual": r"test_jobs.*every_way|test_parity",
    "preemption with a grace time": r"test_survival.*\[grace-",
    "preemption without a grace time": r"test_survival.*\[no-grace-",
    "PreemptMode=CANCEL with a grace time": r"test_survival.*\[cancel-mode-",
    "a training that is done within its grace time": r"within_the_grace",
    "the time limit": r"test_survival.*\[time-limit-",
    "a lost node": r"test_survival.*\[(batch|other)-node-",
    "a node that is cut off, and comes back": r"test_survival.*\[zombie-",
    "kill -9 of a rank": r"test_survival.*\[kill-9-",
    "cancelled stays cancelled": r"test_survival.*\[cancelled-",
    "sweeps (job arrays)": r"test_sweep",
    "Python functions (Executor)": r"executor\.",
    "sizing by the cluster": r"cluster\.",
    "doctor --in-job": r"test_in_job",
    "diagnose of real jobs": r"diagnose\.test_live",
    "accounting (sacct, sacctmgr)": r"test_accounting",
    "sites: select/linear": r"test_sites.*\[linear",
    "sites: whole nodes (OverSubscribe=EXCLUSIVE)": r"test_sites.*\[whole-nodes",
    "sites: topology/tree": r"test_sites.*\[topology|order_of_its_ranks",
    "sites: job_submit.lua": r"test_sites.*\[job-submit-lua",
    "sites: rl_enable": r"test_sites.*\[rate-limit",
    "sites: MaxArraySize=5": r"test_sites.*\[small-arrays",
    "sites: PrivateData": r"test_sites.*\[private",
    "sites: preemption by QOS": r"test_sites.*\[qos",
    "sites: hyper-threads": r"test_sites.*\[threads",
    "sites: requeue_delay": r"test_sites.*\[requeue-delay",
    "sites: enable_expedited_requeue": r"test_sites.*\[expedited",
    "sites: nodes of different sizes": r"test_sites.*\[unequal",
}


def read_results(file: Path) -> dict[str, str]:
    """Return `passed`, `failed` or `skipped` for each test."""
    found = {}
    for case in ET.parse(file).iter("testcase"):  # noqa: S314 - our own tests wrote it
        kinds = {child.tag for child in case} & {"failure", "error", "skipped"}
        result = "failed" if kinds & {"failure", "error"} else "skipped" if kinds else "passed"
        found[f"{case.get('classname')}.{case.get('name')}"] = result
    return found


def summarize(results: dict[str, str], pattern: str) -> str:
    chosen = [result for name, result in results.items() if re.search(pattern, name)]
    parts = [f"{chosen.count(kind)} {kind}" for kind in ("passed", "failed", "skipped") if kind in chosen]
    return ", ".join(parts) or "not run"


def make_table(versions: dict[str, dict[str, str]]) -> str:
    rows = [["feature", *versions], ["---"] * (len(versions) + 1)]
    for feature, pattern in {**FEATURES, "all of these tests": "."}.items():
        cells = [summarize(results, pattern) for results in versions.values()]
        if set(cells) != {"not run"}:
            rows.append([feature, *cells])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


if __name__ == "__main__":
    results: dict[str, dict[str, str]] = {}
    for name in sorted(sys.argv[1:]):
        results.setdefault(Path(name).stem.partition("-")[0], {}).update(read_results(Path(name)))
    table = make_table(results)
    text = PAGE.read_text()
    PAGE.write_text(re.sub(r"(?s)\| feature .*?\n\n", lambda _: f"{table}\n", text, count=1))

"""A rank with a copy of the code runs and imports the copy, whatever has become of the original."""

import json

import pytest

PROGRAM = """
import json, os, sys
import helper, editable, flat
from pathlib import Path
said = {name: sys.modules[name].SAYS for name in ("helper", "editable", "flat")}
said |= {"file": __file__, "argv": sys.argv, "cwd": os.getcwd(), "pythonpath": os.environ["PYTHONPATH"]}
print(json.dumps(said))
"""
FINDER = """
import importlib.machinery, importlib.util, sys
MAPPING = {"flat": "%s"}
class Finder:
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name in MAPPING:
            return importlib.util.spec_from_file_location(name, MAPPING[name] + "/__init__.py")
sys.meta_path.append(Finder)
"""
"""As setuptools writes it for an editable install of a flat project."""


@pytest.fixture
def two(tmp_path):
    """Return the folder of the code, changed since, and the copy of it."""
    for name, version in (("live", "new"), ("copy", "old")):
        root = tmp_path / name
        for path in ("sub/helper.py", "src/editable.py", "flat/__init__.py"):
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(f"SAYS = '{version}'\n")
        (root / "sub" / "train.py").write_text(PROGRAM if name == "copy" else "raise SystemExit('the live one')\n")
    (tmp_path / "live" / "finder.py").write_text(FINDER % (tmp_path / "live" / "flat"))
    (tmp_path / "live" / "sitecustomize.py").write_text("import finder\n")
    return tmp_path / "live", tmp_path / "copy"


def names(two, imports) -> dict[str, str]:
    """Return the variables of a copy; `imports` is the root of PYTHONPATH."""
    live, copy = map(str, two)
    return {"SLURMDDP_CODE": copy, "SLURMDDP_CODE_ORIGIN": live, "PYTHONPATH": f"{imports}/src:{imports}"}


@pytest.mark.parametrize("words", [("train.py", "a"), ("-m", "train", "a")])
def test_the_copy_is_run_and_imported_from(alone, two, words):
    live, copy = two
    environ = names(two, live)
    ended = alone(*words, cwd=live / "sub", **environ)
    assert ended.statuses == [0], ended.stderr
    said = json.loads(ended.stdout)
    assert (said["helper"], said["editable"], said["flat"]) == ("old", "old", "old")
    assert said["file"] == f"{copy}/sub/train.py"
    assert said["argv"] == [f"{copy}/sub/train.py", "a"]
    assert (said["cwd"], said["pythonpath"]) == (f"{live}/sub", f"{copy}/src:{copy}")


@pytest.mark.parametrize(("cwd", "script"), [("", "sub/train.py"), ("sub", "train.py"), ("src", "../sub/train.py")])
def test_a_container_has_the_code_under_the_name_of_a_link_to_it(alone, two, tmp_path, cwd, script):
    """A container's mount is a folder of the link's name, and the folder that it led to is not there."""
    live, copy = two
    here = tmp_path / "home" / "live"
    here.parent.mkdir()
    live.rename(here)
    environ = names(two, here) | {"SLURMDDP_WORKDIR": str(here / cwd), "SLURMDDP_REAL_WORKDIR": str(live / cwd)}
    (here / "sitecustomize.py").unlink()
    for words in ((script, "a"), (here / "sub" / "train.py", "a")):
        ended = alone(*words, cwd=here / cwd, **environ)
        assert ended.statuses == [0], ended.stderr
        said = json.loads(ended.stdout)
        assert (said["file"], said["helper"], said["editable"]) == (f"{copy}/sub/train.py", "old", "old")


def test_a_link_into_the_code_is_known_in_a_container_too(alone, two, tmp_path):
    live, copy = two
    (live / "sub").rename(tmp_path / "mine")
    environ = names(two, copy) | {
        "SLURMDDP_WORKDIR": str(tmp_path / "mine"),
        "SLURMDDP_REAL_WORKDIR": str(live / "sub"),
    }
    ended = alone("train.py", cwd=tmp_path / "mine", **environ)
    assert ended.statuses == [0], ended.stderr
    assert json.loads(ended.stdout)["file"] == f"{copy}/sub/train.py"


def test_an_executable_is_the_copys(alone, two):
    live, copy = two
    for folder, says in ((live, "new"), (copy, "old")):
        (folder / "run.sh").write_text(f"#!/bin/sh\necho {says} $1\n")
        (folder / "run.sh").chmod(0o755)
    environ = names(two, copy)
    assert alone("--no-python", "./run.sh", "x", cwd=live, **environ).stdout == "old x\n"
    assert alone("--no-python", "echo", "x", cwd=live, **environ).stdout == "x\n"


def test_a_script_that_is_not_in_the_code_is_refused(alone, two, tmp_path):
    """Its folder may have another name on the nodes; the live file must not run for the copy."""
    _, copy = two
    (tmp_path / "other.py").write_text("print('ran')\n")
    environ = names(two, copy)
    ended = alone(tmp_path / "other.py", cwd=tmp_path, **environ)
    assert (ended.statuses, ended.stdout) == ([77], "")
    assert "other.py is not in" in ended.stderr

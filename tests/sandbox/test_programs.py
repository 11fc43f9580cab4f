import os
from contextlib import nullcontext

import pytest

from slurmddp.errors import ClusterError
from slurmddp.sandbox import programs, state_directory


def _without(monkeypatch, *missing):
    monkeypatch.setattr(programs, "find", lambda name: None if name in missing else f"/usr/bin/{name}")
    monkeypatch.setattr(programs, "find_error", lambda _: "")


@pytest.mark.parametrize(
    ("missing", "uid", "accounting", "said"),
    [
        (("slurmctld", "slurmd", "ip"), 0, False, "ip, slurmctld, slurmd; type: apt install iproute2 slurm-wlm"),
        (("newuidmap",), 1000, False, "apt install uidmap"),
        (("newuidmap", "mariadbd", "slurmdbd"), 0, False, ""),
        (("mariadbd", "mariadb-install-db", "slurmdbd"), 0, True, "apt install mariadb-server slurmdbd"),
    ],
)
def test_what_is_missing_and_needed_is_named_each_package_once(monkeypatch, missing, uid, accounting, said):
    _without(monkeypatch, *missing)
    monkeypatch.setattr(programs.os, "getuid", lambda: uid)
    with pytest.raises(ClusterError, match=f"{said}$") if said else nullcontext():
        programs.check_machine(accounting=accounting)


@pytest.mark.parametrize(
    ("uid", "refused", "advice"),
    [
        (0, "--mount", "root cannot create namespaces here"),
        (1000, "--map-root-user", "ordinary users cannot create user namespaces here"),
        (1000, "--map-auto", "usermod --add-subuids"),
    ],
)
def test_refused_namespaces_are_one_line_with_advice(monkeypatch, uid, refused, advice):
    _without(monkeypatch)
    monkeypatch.setattr(programs, "find_error", lambda words: "Not permitted" if refused in words else "")
    monkeypatch.setattr(programs.os, "getuid", lambda: uid)
    with pytest.raises(ClusterError, match=advice) as caught:
        programs.check_machine()
    assert "Not permitted" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_command_that_fails_is_an_error_in_its_own_words():
    programs.run_command("true")
    with pytest.raises(ClusterError, match="env -C /nowhere true: .*No such file"):
        programs.run_command("env", "-C", "/nowhere", "true")
    with pytest.raises(ClusterError, match="^false: it ends with status 1$"):
        programs.run_command("false")


def test_programs_of_sandboxes_are_not_the_machines_own(monkeypatch, tmp_path):
    monkeypatch.setattr(state_directory, "_PLACE", tmp_path)
    folder = state_directory.base_folder() / "other" / "bin"
    folder.mkdir(parents=True)
    (folder / "sbatch-of-sandbox").touch(mode=0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}/usr/bin")
    assert programs.find("sbatch-of-sandbox") is None
    assert programs.outside_path() == ["/usr/bin"]


@pytest.mark.parametrize(("said", "version"), [("slurm-wlm 22.05.8", (22, 5)), ("slurm 24.11.5-1", (24, 11))])
def test_the_version_is_what_slurmd_says(monkeypatch, tmp_path, said, version):
    slurmd = tmp_path / "slurmd"
    slurmd.write_text(f"#!/bin/sh\necho '{said}'\n")
    slurmd.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    assert programs.slurm_version() == version
    slurmd.write_text("#!/bin/sh\n")
    with pytest.raises(ClusterError, match="slurmd -V says no version: ''"):
        programs.slurm_version()

"""What an image's name says, and which mounts and combinations are allowed."""

import os
import subprocess
from typing import get_args

import pytest

from slurmddp.config import container
from slurmddp.config.job_spec import JobSpec
from slurmddp.errors import UsageError
from slurmddp.script.render import render


def job(**values) -> JobSpec:
    return JobSpec(**{"job_name": "x", "container": "torch.sif"} | values)


@pytest.mark.parametrize(
    ("image", "runtime"),
    [
        ("torch.sif", "apptainer"),
        ("/images/torch", "apptainer"),
        ("./torch", "apptainer"),
        ("docker://pytorch/pytorch:2.9", "apptainer"),
        ("oras://registry.example/torch:1", "apptainer"),
        ("/images/torch.sqsh", "pyxis"),
        ("nvcr.io#nvidia/pytorch:25.10-py3", "pyxis"),
        ("user@nvcr.io#nvidia/pytorch", "pyxis"),
        ("pytorch/pytorch:2.9", "pyxis"),
        ("ubuntu", "pyxis"),
    ],
)
def test_an_images_name_says_what_runs_it(image, runtime):
    assert job(container=image).runtime == runtime
    assert job(container=image, container_runtime="pyxis").runtime == "pyxis"


def test_a_job_without_an_image_has_no_container():
    """A site's configuration may name the runtime and mounts for those that have one."""
    spec = JobSpec(job_name="x", container_runtime="pyxis", container_mount=("/data",))
    assert spec.runtime is None
    assert "container" not in render(spec)


@pytest.mark.parametrize(
    ("mount", "spelled"),
    [("/a", "/a:/a"), ("/a:ro", "/a:/a:ro"), ("/a:/b", "/a:/b"), ("/a b:/c:ro", "/a b:/c:ro"), ("/a:rw", "/a:/a:rw")],
)
def test_a_mounts_target_is_written_out(mount, spelled):
    assert container.complete_mount(mount) == spelled


@pytest.mark.parametrize("mount", ["data", "/a:b", "/a,/b", "/a:/b:/c", "/a:/b:rx", "$X:/b"])
def test_what_is_no_mount_is_refused(mount):
    with pytest.raises(UsageError, match=r"--container-mount: .* is not SRC\[:DST\]\[:ro\]"):
        job(container_mount=(mount,))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"venv": "v"}, "--venv with --container"),
        ({"conda": "e"}, "--conda with --container"),
        ({"launcher": "manual", "container_runtime": "pyxis"}, "give --container-runtime apptainer"),
    ],
)
def test_what_cannot_be_together_is_refused(values, message):
    with pytest.raises(UsageError, match=message):
        job(**values)


@pytest.mark.parametrize(("folder", "what"), [("a:b", "working directory"), ("a,b", "working directory")])
def test_a_folder_that_no_mount_can_name_is_refused(folder, what, tmp_path, monkeypatch):
    (tmp_path / folder).mkdir()
    monkeypatch.chdir(tmp_path / folder)
    with pytest.raises(UsageError, match=f"{what} .* has : or , in its path"):
        render(job())
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="the run's folder"):
        render(job(runs_dir=folder))


def test_the_containers_python_is_its_own_unless_one_is_named():
    assert '"\\$@\\"" sh \\\n    python3 -u /opt/slurmddp/slurmddp/attach/bootstrap.py slurmddp' in render(job())
    assert (
        '"\\$@\\"" sh \\\n    /opt/conda/bin/python -u /opt/slurmddp/slurmddp/attach/bootstrap.py slurmddp'
        in render(job(python="/opt/conda/bin/python"))
    )


def test_values_of_variables_are_not_on_a_command_line():
    """Other users of a node can read those."""
    for runtime in get_args(container.Runtime):
        script = render(job(container_runtime=runtime, env=("TOKEN", "A=secret")))
        assert script.count("secret") == script.count("export A=secret") == 1


def test_gpus_are_asked_for_only_with_gpus():
    assert " --nv " not in render(job())
    assert " --nv " in render(job(gpus_per_node="2"))


SHIMS = {
    "srun": '[ "$1" = --help ] && echo --container-image || printf "%s\\n" "$@"',
    "apptainer": ":",
    "podman-hpc": ":",
    "shifter": ":",
    "scontrol": "echo n1",
    "supervisor": "exec bash -c 'eval \"$(cat)\"; launch'",
}
"""Stand-ins that show the words which srun would get."""


def test_hostile_names_stay_words(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hostile = "$(touch injected)'\"`x`"
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in SHIMS.items():
        (programs / name).write_text(f"#!/bin/bash\n{text}\n")
        (programs / name).chmod(0o755)
    environ = {"PATH": f"{programs}:{os.defpath}", "SLURM_JOB_ID": "7", "SLURMDDP_ATTEMPT_DIR": "/x"}
    for runtime in get_args(container.Runtime):
        values = {"container_runtime": runtime, "container_mount": (f"/{hostile}:/b",), "job_name": runtime}
        script = render(job(container=hostile, supervisor_python="supervisor", **values))
        subprocess.run(["bash", "-s"], input=script, env=environ, text=True, check=True)
        said = (tmp_path / "jobs" / runtime / "logs" / "7.out").read_text().splitlines()
        assert "slurmddp.worker" in said, said
        assert any(hostile in line for line in said)
        assert not (tmp_path / "injected").exists()


def test_a_files_bare_name_is_no_image_of_a_registry():
    for image, word in (("a.sqsh", "./a.sqsh"), ("/a.sqsh", "/a.sqsh"), ("ubuntu:24.04", "ubuntu:24.04")):
        assert f"--container-image={word} " in render(job(container=image))


def test_a_set_up_file_that_swallows_the_next_line_is_refused(tmp_path):
    path = tmp_path / "open.sh"
    path.write_text("export A=1 \\\n")
    with pytest.raises(UsageError, match="ends in a backslash"):
        render(job(setup_file=str(path)))

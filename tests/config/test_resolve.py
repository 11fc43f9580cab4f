"""Sources are merged in their order, each value knows where it came from, and what was recorded can be repeated."""

import sys
import tomllib
from pathlib import Path

import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from slurmddp.config import job_files
from slurmddp.config import resolve as config
from slurmddp.config.job_spec import JOB_FIELDS, JobSpec
from slurmddp.config.worker_options import WORKER_FIELDS
from slurmddp.errors import UsageError


def resolve(*, words=(), job_file=None, environ=None, **options):
    return config.resolve(options=options, words=tuple(words), job_file=job_file, environ=environ or {})


def file(folder: Path, text: str, name: str = "exp.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_a_sites_variables_for_sbatch_count_below_ours():
    environ = {"SBATCH_ACCOUNT": "site", "SBATCH_PARTITION": "site", "SLURMDDP_PARTITION": "mine"}
    spec = resolve(environ=environ).spec
    assert (spec.account, spec.partition) == ("site", "mine")


def test_a_list_in_the_environment_has_an_item_a_line():
    assert resolve(environ={"SLURMDDP_MODULE": "cuda/12\ngcc 13"}).spec.module == ("cuda/12", "gcc 13")


def test_an_option_under_its_former_name_is_read_from_every_source(tmp_path):
    assert resolve(environ={"SLURMDDP_INIT": "file"}).spec.rendezvous == "file"
    assert resolve(job_file=file(tmp_path, 'init = "file"')).spec.rendezvous == "file"
    assert resolve(environ={"SLURMDDP_INIT": "file", "SLURMDDP_RENDEZVOUS": "tcp"}).spec.rendezvous == "tcp"


@pytest.mark.parametrize(
    ("text", "name"),
    [("", "exp"), ('name = "y"', "y"), ('job-name = "z"', "z"), ('command = ["x.py"]', "exp")],
)
def test_a_job_file_names_the_job_unless_it_says_otherwise(tmp_path, text, name):
    assert resolve(job_file=file(tmp_path, text)).spec.job_name == name


def test_without_a_job_file_the_program_names_the_job():
    assert resolve(words=["dir/train.py"]).spec.job_name == "train"
    assert resolve(words=["-m", "pkg.fit"]).spec.job_name == "fit"
    assert resolve().spec.job_name == "mnist"
    assert resolve(words=["--task", "linear"]).spec.job_name == "linear"


def test_every_path_in_a_file_is_relative_to_it_and_a_name_is_none(tmp_path, monkeypatch):
    (tmp_path / "sub").mkdir()
    monkeypatch.setenv("HOME", "/home/me")
    text = 'command = ["python", "-u", "train.py", "a.bin"]\nconda = "./env"\nruns-dir = "~/runs"\nvenv = "ve"\n'
    spec = resolve(job_file=file(tmp_path / "sub", f'{text}python = "python3"\n')).spec
    assert spec.command == (str(tmp_path / "sub" / "train.py"), "a.bin")
    assert (spec.conda, spec.runs_dir) == (str(tmp_path / "sub" / "env"), "/home/me/runs")
    assert (spec.venv, spec.python) == (str(tmp_path / "sub" / "ve"), "python3")
    monkeypatch.chdir(tmp_path)
    assert resolve(job_file=Path(file(tmp_path, text).name)).spec.command == ("train.py", "a.bin")
    assert resolve(job_file=file(tmp_path / "sub", 'conda = "ml"')).spec.conda == "ml"
    assert resolve(job_file=file(tmp_path / "sub", 'venv = "$TMPDIR/e"')).spec.venv == "$TMPDIR/e"
    data = resolve(job_file=file(tmp_path / "sub", '[worker]\ndata = "images"')).spec.worker.data
    assert data == str(tmp_path / "sub" / "images")
    assert resolve(job_file=file(tmp_path / "sub", '[worker]\ndata = "digits"')).spec.worker.data == "digits"


def test_the_python_that_command_names_by_its_path_is_the_ranks(tmp_path):
    assert resolve(words=["/opt/ml/bin/python", "train.py"]).spec.python == "/opt/ml/bin/python"
    assert resolve(words=["/opt/ml/bin/torchrun", "train.py"]).spec.python == "/opt/ml/bin/python"
    assert resolve(words=["/opt/ml/bin/python", "train.py"], python="mine").spec.python == "mine"
    assert resolve(words=["python", "train.py"]).spec.python is None
    path = file(tmp_path, 'command = ["./env/bin/python", "train.py"]')
    spec = resolve(job_file=path).spec
    assert (spec.python, spec.command) == (str(tmp_path / "env/bin/python"), (str(tmp_path / "train.py"),))
    assert resolve(job_file=path, words=["other.py"]).spec.python is None


def test_a_launcher_that_begins_the_command_of_a_file_says_the_nodes(tmp_path):
    (tmp_path / "sub").mkdir()
    text = 'command = ["torchrun", "--nnodes=2", "--nproc-per-node=4", "train.py"]\n'
    resolved = resolve(job_file=file(tmp_path / "sub", text))
    assert (resolved.spec.command, resolved.spec.nodes) == ((str(tmp_path / "sub/train.py"),), 2)
    assert (resolved.origins["nodes"], resolved.launch.ranks_per_node) == ("the options of torchrun", 4)
    spec = resolve(job_file=tmp_path / "sub" / "exp.toml", words=["other.py"]).spec
    assert (spec.nodes, spec.command) == (1, ("other.py",))
    with pytest.raises(UsageError, match="key nodes 3, but torchrun asks for 2 nodes; give one of them"):
        resolve(job_file=file(tmp_path / "sub", f"nodes = 3\n{text}"))


def test_an_executable_of_a_file_is_a_path_only_with_a_slash(tmp_path):
    for words, command in (('"uv", "run", "x.py"', ("uv", "run", "x.py")), ('"bin/fit"', (str(tmp_path / "bin/fit"),))):
        assert resolve(job_file=file(tmp_path, f"no-python = true\ncommand = [{words}]")).spec.command == command


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nodes = 2\nnodes = ", "exp.toml: Invalid value (at end of document)"),
        ("node = 2", "unknown key 'node'; did you mean nodes"),
        ("zzz = 2", "allowed are nodes"),
        ("gpus = 2", "unknown key 'gpus'; did you mean gpus-per-node?"),
        ('script = "x.py"', "unknown key 'script'; allowed are nodes"),
        ('nodes = "two"', "key nodes: 'two' is not a whole number, 1 to 2147483647"),
        ("nodes = 0", "key nodes: 0 is not"),
        ("nodes = 1.5", "key nodes: 1.5 is not"),
        ("requeue = 1", "key requeue: 1 is not true or false"),
        ('launcher = "mpi"', "key launcher: 'mpi' is not one of srun, fork"),
        ('gpus-per-node = "8:a100"', "key gpus-per-node: '8:a100' is not a count"),
        ("partition = 5", "key partition: 5 is not a string"),
        ("runs-dir = 2026", "key runs-dir: 2026 is not a string"),
        ("container = -3", "key container: -3 is not a string"),
        ('time = "soon"', "key time: 'soon' is not a Slurm time"),
        ('module = "cuda"', 'key module: \'cuda\' is not a list of strings, as in ["a", "b"]'),
        ("nodes = 2\nnodes = 3", "exp.toml: Cannot overwrite a value (at end of document)"),
        ("[job]\nnodes = 2", "there is no table [job]; write its keys without it; the tables are worker, env and"),
        ("[slurmddp]\nnodes = 2", "there is no table [slurmddp]"),
        (
            'command = "train.py"',
            'key command: \'train.py\' is not a list of strings, as in ["train.py", "--lr", "0.1"]',
        ),
        ("worker = 1", "key worker: 1 is not a table"),
        ("[worker]\nepoch = 1", "table worker: unknown key 'epoch'; did you mean epochs"),
        ("[worker]\nepochs = 0", "table worker, key epochs: 0 is not a whole number, 1 to 2147483647"),
        ('command = ["x.py"]\n[worker]\nepochs = 1', "exclude each other"),
        ('name = "a"\njob-name = "b"', "same option"),
        ("[env]\nA = true", "table env, key A: true is not a string or a number"),
        ("recorded = 1", "not as slurmddp writes it"),
        ('name = "a/b"', "exp.toml, key job-name: 'a/b' is not allowed"),
        ('[env]\nRANK = "1"', "exp.toml, key env: RANK belongs to Slurm"),
        ("time = 5\nsignal-lead = 600", "key signal-lead: --signal-lead 600 leaves nothing of the time limit 5"),
        (
            "nodes = 1\nmem = 16G # all",
            "exp.toml: Expected newline or end of document after a statement (at line 2, column 9)",
        ),
        ("[env]\nHF_TOKEN = hf_1", "exp.toml: Invalid value (at line 2, column 12); a text stands in quotes, as in"),
        *((f'hang-timeout = "{wrong}"', f"'{wrong}' is not auto, or seconds") for wrong in ("0", "5d", "1h30m", "no")),
        ('name = "a\\nb"', "not allowed"),
    ],
)
def test_a_wrong_job_file_is_one_line_that_says_where_and_what(tmp_path, text, message):
    with pytest.raises(UsageError) as caught:
        resolve(job_file=file(tmp_path, text))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_byte_order_mark_is_allowed(tmp_path):
    assert resolve(job_file=file(tmp_path, "\ufeffnodes = 3")).spec.nodes == 3


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [("TIME", "99999999999", "'99999999999' is too long"), ("NODES", "many", "'many' is not a whole number")],
)
def test_a_wrong_variable_is_named_and_not_an_option_that_was_not_typed(name, text, message):
    with pytest.raises(UsageError, match=f"^SLURMDDP_{name}: {message}"):
        resolve(environ={f"SLURMDDP_{name}": text})


@pytest.mark.parametrize(
    ("origin", "named"),
    [
        ("SBATCH_PARTITION", "SBATCH_PARTITION: "),
        ("job file a.toml, key partition", "job file a.toml, key partition: "),
        *((other, "--partition: ") for other in ("--partition", "built-in", "COMMAND", "the free nodes of gpu")),
    ],
)
def test_a_message_on_an_option_names_the_variable_or_the_file_of_its_value(origin, named):
    said = config.with_origin("--partition: 'x' does not exist", {"partition": origin})
    assert said == f"{named}'x' does not exist"


def test_mounts_for_every_job_with_a_container_may_stand_in_a_file(tmp_path):
    assert resolve(job_file=file(tmp_path, 'container-mount = ["/a"]')).spec.container is None


def test_a_job_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(UsageError, match="none.toml' cannot be read: No such file"):
        resolve(job_file=tmp_path / "none.toml")
    (tmp_path / "latin.toml").write_bytes(b'nodes = 1\nname = "\xff"\n')
    with pytest.raises(UsageError, match="line 2: not UTF-8"):
        resolve(job_file=tmp_path / "latin.toml")


def test_words_for_the_worker_beside_a_files_command_are_refused(tmp_path):
    with pytest.raises(UsageError, match="has a command"):
        resolve(job_file=file(tmp_path, 'command = ["x.py"]'), words=["--epochs", "1"])


words = st.binary(min_size=1, max_size=8).map(lambda raw: raw.replace(b"\0", b"x").decode("utf-8", "surrogateescape"))


@given(arguments=st.lists(words, max_size=4))
def test_a_recorded_command_is_repeated_byte_for_byte(tmp_path_factory, arguments):
    first = resolve(words=["train.py", *arguments], nodes="2", env=("A=b", "C"), module=("m",))
    path = tmp_path_factory.mktemp("recorded") / "spec.toml"
    table = config.build_record(first, directory=str(Path.cwd()), version="0")
    path.write_text(tomli_w.dumps(table))
    assert resolve(job_file=path).spec == first.spec, "set-up lines choose the Python again"


def test_a_recorded_run_of_the_worker_is_repeated(tmp_path):
    first = resolve(words=["--task", "linear", "--lr", "0.5"], gpus_per_node="a100:8", time="30")
    path = file(
        tmp_path, tomli_w.dumps(config.build_record(first, directory=str(Path.cwd()), version="0")), "spec.toml"
    )
    assert resolve(job_file=path).spec == structs.replace(first.spec, python=sys.executable)
    assert tomllib.loads(path.read_text())["recorded"]["origins"]["time"] == "--time"


def test_options_that_an_older_version_had_switched_off_are_no_error_in_its_record(tmp_path):
    record = config.build_record(resolve(words=["--task", "linear"]), directory=str(Path.cwd()), version="0")
    record["worker"] |= {"static-graph": False, "comm-hook": "none"}
    assert resolve(job_file=file(tmp_path, tomli_w.dumps(record), "spec.toml")).spec.worker.task == "linear"
    record["worker"]["static-graph"] = True
    with pytest.raises(UsageError, match="unknown key 'static-graph'"):
        resolve(job_file=file(tmp_path, tomli_w.dumps(record), "spec.toml"))


def test_the_workers_options_are_also_taken_directly(tmp_path):
    path = file(tmp_path, '[worker]\ntask = "linear"\nepochs = 3\nseed = 4\n')
    given_directly = {"epochs": "5", "lr": "0.1"}
    resolved = config.resolve(options={}, words=("--lr", "0.2"), job_file=path, environ={}, worker=given_directly)
    worker = resolved.spec.worker
    assert (worker.task, worker.epochs, worker.seed, worker.lr) == ("linear", 5, 4, 0.2)
    with pytest.raises(UsageError, match="--epochs: 'x' is not a whole number"):
        config.resolve(options={}, words=(), job_file=None, environ={}, worker={"epochs": "x"})
    program = file(tmp_path, 'command = ["x.py"]', "program.toml")
    with pytest.raises(UsageError, match="'--lr' is for the bundled worker, but job file .* has a command"):
        config.resolve(options={}, words=(), job_file=program, environ={}, worker={"lr": "1"})


def test_no_option_of_the_worker_has_a_job_options_name():
    def spellings(fields):
        return {name for key in fields for name in (key, f"no-{key}", fields[key].option.also) if name}

    assert not spellings(JOB_FIELDS) & spellings(WORKER_FIELDS)


def test_an_executable_keeps_its_leading_python(tmp_path):
    spec = resolve(words=["/usr/bin/python3", "-u", "x.py"], no_python=True).spec
    assert (spec.command, spec.python, spec.job_name) == (("/usr/bin/python3", "-u", "x.py"), None, "python3")
    assert spec.program == ("--no-python", *spec.command)
    path = file(tmp_path, 'no-python = true\ncommand = ["./train"]')
    assert resolve(job_file=path).spec.program[0] == "--no-python"
    with pytest.raises(UsageError, match="--no-python: COMMAND is missing"):
        JobSpec(job_name="x", no_python=True)


def configured(folder: Path, text: str, user: str = "", **arguments):
    """Resolve in a project, below a user's own file."""
    (folder / "repository" / ".git").mkdir(parents=True, exist_ok=True)
    (folder / "config" / "slurmddp").mkdir(parents=True, exist_ok=True)
    file(folder / "repository", text, "slurmddp.toml")
    file(folder / "config" / "slurmddp", user, "config.toml")
    words, job_file = arguments.pop("words", ()), arguments.pop("job_file", None)
    environ, worker = arguments.pop("environ", {}), arguments.pop("worker", {})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(folder / "config"))
        found = job_files.find_configuration(folder / "repository")
    return config.resolve(
        options=arguments,
        words=tuple(words),
        job_file=job_file,
        environ=environ,
        worker=worker,
        configuration=found.files,
    )


def test_every_source_beats_those_below_it(tmp_path):
    job = file(tmp_path, 'nodes = 3\npartition = "job"\ntime = "3"\n')
    resolved = configured(
        tmp_path,
        'nodes = 2\npartition = "project"\ntime = "2"\nqos = "project"\n',
        'nodes = 1\npartition = "user"\ntime = "1"\nqos = "user"\nmem = "1G"\n',
        job_file=job,
        environ={"SLURMDDP_NODES": "4", "SLURMDDP_PARTITION": "variable"},
        nodes="5",
    )
    spec, origins = resolved.spec, resolved.origins
    assert (spec.nodes, spec.partition, spec.time, spec.qos, spec.mem) == (5, "variable", "3", "project", "1G")
    project, user = resolved.files[1:]
    assert [origins[key] for key in ("nodes", "partition", "time", "qos", "mem", "account")] == [
        "--nodes",
        "SLURMDDP_PARTITION",
        f"job file {job}, key time",
        f"project file {project.path}, key qos",
        f"user file {user.path}, key mem",
        "built-in",
    ]


def test_set_up_options_keep_their_order_the_weakest_source_first(tmp_path):
    resolved = configured(
        tmp_path, 'setup = ["a", "b"]\nmodule = ["c"]', 'conda = "e"\nvenv = "unused"', module=("d", "f"), venv="v",
        setup_order=("module", "venv", "module"),
    )  # fmt: skip
    steps = (("conda", "e"), ("setup", "a"), ("setup", "b"), ("module", "d"), ("venv", "v"), ("module", "f"))
    assert resolved.spec.setup_steps == steps


@given(order=st.lists(st.sampled_from(("setup", "module", "setup_file")), max_size=6))
def test_a_recorded_job_keeps_the_order_of_its_set_up_options(tmp_path_factory, order):
    values = {name: tuple(f"{name}{number}" for number in range(order.count(name))) for name in ("setup", "module")}
    first = resolve(words=["train.py"], **values, setup_file="s.sh", setup_order=tuple(order))
    path = tmp_path_factory.mktemp("recorded") / "spec.toml"
    path.write_text(tomli_w.dumps(config.build_record(first, directory=str(Path.cwd()), version="0")))
    assert resolve(job_file=path).spec.setup_steps == first.spec.setup_steps


def test_a_list_from_a_higher_source_replaces_the_lower_one(tmp_path):
    resolved = configured(
        tmp_path, 'module = ["a"]\n[env]\nA = 1', 'module = ["b", "c"]\nsetup = ["true"]', env=("B=2",)
    )
    assert (resolved.spec.module, resolved.spec.env, resolved.spec.setup) == (("a",), ("B=2",), ("true",))


PROFILES = """
nodes = 2
qos = "plain"
[profile.big]
nodes = 8
venv = "big"
[profile.big.worker]
epochs = 8
"""


@pytest.mark.parametrize(
    "how", [{"profile": "big"}, {"environ": {"SLURMDDP_PROFILE": "big"}}, {"user": 'profile = "big"'}]
)
def test_a_profile_beats_its_own_files_plain_values_and_no_higher_source(how, tmp_path):
    resolved = configured(tmp_path, PROFILES, **how)
    assert (resolved.spec.nodes, resolved.spec.qos, resolved.spec.profile) == (8, "plain", "big")
    assert resolved.spec.venv == str(tmp_path / "repository" / "big")
    assert resolved.spec.worker.epochs == 8
    project = tmp_path / "repository" / "slurmddp.toml"
    assert resolved.origins["nodes"] == f"project file {project}, table profile.big, key nodes"
    assert resolved.program_origins["epochs"] == f"project file {project}, table profile.big.worker, key epochs"
    typed = "profile" in how
    nodes = configured(tmp_path, PROFILES, job_file=file(tmp_path, "nodes = 3"), **how).spec.nodes
    assert nodes == (8 if typed else 3), "a profile that was typed beats the job file's plain values"


def test_every_file_gives_its_part_of_a_profile(tmp_path):
    job = file(tmp_path, "time = 1\n[profile.big]\ntime = 9")
    user = '[profile.big]\nnodes = 7\naccount = "u"\n[profile.small]\nnodes = 1'
    spec = configured(tmp_path, PROFILES, user, job_file=job, profile="big").spec
    assert (spec.time, spec.nodes, spec.account) == ("9", 8, "u")


def test_a_profile_that_no_file_has_is_refused_with_the_near_ones(tmp_path):
    with pytest.raises(UsageError, match="SLURMDDP_PROFILE: unknown profile 'bg'; did you mean big"):
        configured(tmp_path, PROFILES, environ={"SLURMDDP_PROFILE": "bg"})
    with pytest.raises(
        UsageError, match=r"--profile: there is no profile 'x'; write a table \[profile.x\] into slurmddp.toml"
    ):
        resolve(profile="x")
    with pytest.raises(UsageError, match="key profile: 3 is not a string"):
        configured(tmp_path, "profile = 3")


def test_the_workers_tables_are_merged_and_do_not_hinder_a_command(tmp_path):
    project = '[worker]\ntask = "linear"\nepochs = 3\nseed = 3\n'
    job = file(tmp_path, "[worker]\nepochs = 4\nlr = 1\n")
    resolved = configured(tmp_path, project, "[worker]\nseed = 2\nmomentum = 0", job_file=job, words=["--lr", "2"])
    worker = resolved.spec.worker
    assert (worker.task, worker.epochs, worker.seed, worker.lr, worker.momentum) == ("linear", 4, 3, 2.0, 0.0)
    assert resolved.program_origins["lr"] == "--lr"
    assert resolved.program_origins["data"] == "built-in"
    resolved = configured(tmp_path, project, words=["train.py"])
    assert (resolved.spec.command, resolved.program_origins) == (("train.py",), {"command": "the command line"})
    job = file(tmp_path, 'command = ["x.py"]')
    assert configured(tmp_path, project, job_file=job).program_origins == {"command": f"job file {job}, key command"}
    with pytest.raises(UsageError, match="exclude each other"):
        configured(tmp_path, "", job_file=file(tmp_path, 'command = ["x.py"]\n[profile.a.worker]\nlr = 1'), profile="a")


def test_commands_python_ranks_where_command_stands(tmp_path):
    project = 'python = "project"'
    assert configured(tmp_path, project, words=["/cli/python", "x.py"]).spec.python == "/cli/python"
    job = file(tmp_path, 'command = ["/job/python", "x.py"]')
    assert configured(tmp_path, project, job_file=job).spec.python == "/job/python"
    environ = {"SLURMDDP_PYTHON": "variable"}
    assert configured(tmp_path, project, job_file=job, environ=environ).spec.python == "variable"
    assert configured(tmp_path, project, words=["/cli/python", "x.py"], environ=environ).spec.python == "/cli/python"


def recorded(tmp_path, **options):
    table = config.build_record(resolve(words=["train.py"], **options), directory=str(Path.cwd()), version="0")
    return file(tmp_path, tomli_w.dumps(table), f"{'-'.join(options)}.toml")


def test_a_recorded_job_has_the_python_that_it_ran_with_whatever_is_active_today(tmp_path, monkeypatch):
    active = {"VIRTUAL_ENV": sys.prefix}
    path = recorded(tmp_path)
    here = sys.executable
    monkeypatch.setattr(sys, "executable", "/another/python")
    assert resolve(job_file=path, environ=active).spec.python == here
    assert resolve(job_file=path, python="x").spec.python == "x"
    for key in ("venv", "conda", "container"):
        spec = resolve(job_file=path, **{key: "x"}).spec
        assert (getattr(spec, key), spec.python) == ("x", None)
        assert resolve(job_file=recorded(tmp_path, **{key: "y"})).spec.python is None
    both = recorded(tmp_path, container="y.sif", python="python3.12")
    assert resolve(job_file=both, container="x.sif").spec.python == "python3.12"


def test_a_recorded_job_takes_nothing_from_todays_configuration(tmp_path):
    first = configured(tmp_path, PROFILES, profile="big")
    table = config.build_record(first, directory=str(Path.cwd()), version="0")
    assert "profile" not in table
    path = file(tmp_path, tomli_w.dumps(table), "spec.toml")
    environ = {"SLURMDDP_PROFILE": "big", "SLURMDDP_MEM": "2G"}
    again = configured(tmp_path, 'partition = "new"\nlauncher = "fork"', job_file=path, environ=environ)
    assert (again.spec.partition, again.spec.nodes, again.spec.mem, again.spec.profile) == (None, 8, "2G", None)
    assert (again.spec.launcher, [source.path for source in again.files]) == ("srun", [path])
    with pytest.raises(UsageError, match="--profile: there is no profile 'big'"):
        configured(tmp_path, PROFILES, job_file=path, profile="big")


def test_the_folder_of_runs_is_found_as_the_jobs_are(tmp_path):
    files = configured(tmp_path, 'runs-dir = "a"\n[profile.p]\nruns-dir = "b"').files
    folder = tmp_path / "repository"
    assert config.find_runs_dir(files, {}) == str(folder / "a")
    assert config.find_runs_dir(files, {"SLURMDDP_PROFILE": "p"}) == str(folder / "b")
    assert config.find_runs_dir(files, {"SLURMDDP_RUNS_DIR": "c"}) == "c"
    assert config.find_runs_dir((), {}) == "jobs"


def test_a_tilde_that_the_shell_has_left_is_home(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    spec = resolve(environ={"SLURMDDP_SETUP_FILE": "~/s.sh"}, venv="~/v", setup=("echo ~",)).spec
    assert (spec.venv, spec.setup_file, spec.setup) == ("/home/me/v", "/home/me/s.sh", ("echo ~",))

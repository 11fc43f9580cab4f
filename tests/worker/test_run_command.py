"""A COMMAND runs as plain python would run it, and how it ended is on record."""

import json
import os
import re
import sys
from pathlib import Path

import pytest

from slurmddp.runs.checkpoints import read_progress_mark

HOSTILE = [
    "a b",
    "x\ny",
    "",
    "-m",
    "--task",
    "a\\b",
    "$(id)",
    "*",
    "cr\r\n",
    "é",
    b"\xff".decode("utf-8", "surrogateescape"),
]


@pytest.fixture
def script(tmp_path):
    """Return a function that writes a program into a folder of its own."""
    folder = tmp_path / "code"
    folder.mkdir()

    def write(text: str, name: str = "train.py") -> Path:
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    return write


def test_words_reach_the_script_byte_for_byte(alone, script):
    path = script("import os, sys; print([os.fsencode(word) for word in sys.argv])")
    ended = alone(path, *(word.encode("utf-8", "surrogateescape") for word in HOSTILE))
    assert ended.statuses == [0]
    assert ended.stdout == f"{[word.encode('utf-8', 'surrogateescape') for word in [str(path), *HOSTILE]]}\n"


def test_a_script_finds_itself_as_main(alone, script):
    """Pickles, spawned children and exit handlers look `__main__` up."""
    script("HERE = 1", "neighbour.py")
    path = script(
        "import atexit, multiprocessing, pickle, sys\n"
        "import neighbour\n"
        "class Thing: pass\n"
        "def double(x): return 2 * x\n"
        "def at_end(): print('exit handler', pickle.loads(pickle.dumps(Thing())).__class__.__module__)\n"
        "if __name__ == '__main__':\n"
        "    atexit.register(at_end)\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool: print(pool.map(double, [21]))\n"
        "    print(__file__, __spec__, __package__, sys.path[0])\n"
    )
    ended = alone("code/train.py", cwd=path.parent.parent)
    assert ended.stdout.splitlines() == [
        "[42]",
        f"{path} None None {path.parent}",
        "exit handler __main__",
    ]
    assert ended.record(0) == "0 done\n"


def test_a_module_runs_as_main_from_the_working_folder(alone, script):
    script("", "pkg/__init__.py")
    path = script("import sys; print(__name__, __spec__.name, sys.argv, sys.path[0])", "pkg/train.py")
    folder = path.parent.parent
    ended = alone("-m", "pkg.train", "x", cwd=folder)
    assert ended.stdout == f"__main__ pkg.train ['{path}', 'x'] {folder}\n"


SAVES = {
    "torch": "import torch; torch.save([1], 'x.pt')",
    "torch, by its other name": "from torch.serialization import save; save([1], 'x.pt')",
    "safetensors": "import torch; from safetensors.torch import save_file; save_file({'a': torch.ones(1)}, 'x')",
}


@pytest.mark.parametrize("by", [*SAVES, "nothing"])
def test_what_the_program_saves_by_its_own_means_is_noted_for_the_supervisor(alone, script, tmp_path, by):
    path = script(SAVES.get(by, "import torch; torch.ones(1)"))
    run = alone(path, cwd=tmp_path).run
    (record,) = run.logs.glob("*/*/0.end")
    job_id, attempt = record.parent.parent.name, record.parent.name
    assert run.program_save(job_id, attempt).exists() == (by != "nothing")
    assert re.fullmatch(
        r"one of the program, 20\S+Z" if by != "nothing" else "none", read_progress_mark(run, "", job_id)
    )


@pytest.mark.parametrize("program", [("code/train.py",), ("-m", "train")])
def test_a_program_of_torch_distributed_launch_gets_its_local_rank(alone, script, program):
    path = script("import sys; print(sys.argv[1:])")
    folder = path.parent if program[0] == "-m" else path.parent.parent
    ended = alone("-m", "torch.distributed.launch", *program, "--lr", "1", cwd=folder)
    assert ended.stdout == "['--local-rank=0', '--lr', '1']\n"


def test_a_console_script_of_the_environment_is_run_as_the_python_program_that_it_is(alone, script, tmp_path):
    installed = script("import sys; print(sys.argv, __name__)", "nequip-train")
    installed.chmod(0o755)
    ended = alone("nequip-train", "-cn", "x", PATH=f"{installed.parent}:{os.environ['PATH']}", cwd=tmp_path)
    assert ended.stdout == f"['{installed}', '-cn', 'x'] __main__\n"
    assert ended.record(0) == "0 done\n"


@pytest.mark.parametrize(("flags", "own", "environ"), [((), True, {}), (("-P",), False, {"PYTHONSAFEPATH": "1"})])
def test_the_scripts_folder_comes_first_unless_the_user_wants_a_safe_path(alone, script, flags, own, environ):
    """The working folder, which `-m` puts in front, does not stay there."""
    path = script("import sys; print(sys.path[:2])")
    ended = alone(path, flags=flags, cwd=path.parent.parent, **environ)
    assert (f"'{path.parent}'" in ended.stdout) is own
    assert f"'{path.parent.parent}'" not in ended.stdout


@pytest.mark.parametrize(
    ("line", "status", "record", "stderr"),
    [
        ("sys.exit()", 0, "0 done", ""),
        ("sys.exit(0)", 0, "0 done", ""),
        ("sys.exit(3)", 77, "77 rank 0 on n1: exit status 3", ""),
        ("sys.exit('no data')", 77, "77 rank 0 on n1: exit status 1", "no data\n"),
        ("sys.exit([1])", 77, "77 rank 0 on n1: exit status 1", "[1]\n"),
        ("raise KeyboardInterrupt", 77, "77 rank 0 on n1: KeyboardInterrupt: ", None),
        ("raise ConnectionResetError('by peer')", 76, "76 rank 0 on n1: ConnectionResetError: by peer", None),
        ("raise TimeoutError", 76, "76 rank 0 on n1: TimeoutError: ", None),
    ],
)
def test_how_it_ended_is_on_record(alone, script, line, status, record, stderr):
    ended = alone(script(f"import sys\n{line}\n"))
    assert ended.statuses == [status]
    assert ended.record(0).strip() == record.strip()
    assert stderr is None or ended.stderr == stderr
    (end,) = ended.events("end")
    assert end["status"] == status


def test_an_exception_shows_the_programs_own_lines(alone, script):
    path = script("def f():\n    raise ValueError('boom')\nf()\n")
    ended = alone(path)
    lines = ended.stderr.splitlines()
    assert lines[:2] == ["Traceback (most recent call last):", f'  File "{path}", line 3, in <module>']
    assert lines[-1] == "ValueError: boom"
    assert "slurmddp" not in ended.stderr.replace(str(path), "")
    message = json.loads(ended.run.rank_error("17", "0.0", 0).read_text())["message"]
    assert message["message"] == "ValueError: boom"
    assert message["extraInfo"]["py_callstack"] == ended.stderr


def test_a_users_excepthook_is_called(alone, script):
    path = script("import sys\nsys.excepthook = lambda *_: print('hooked')\nraise ValueError\n")
    assert alone(path).stdout == "hooked\n"


def test_what_is_not_there_gives_what_python_gives(alone):
    for words, stderr in ((["missing.py"], "can't open file"), (["-m", "no_such_module"], "No module named no_such_")):
        ended = alone(*words)
        assert ended.statuses == [77] and stderr in ended.stderr and "Traceback" not in ended.stderr


def test_a_syntax_error_gives_what_python_gives(alone, script):
    path = script("x = (\n")
    ended = alone(path)
    assert ended.stderr.splitlines()[0] == f'  File "{path}", line 1'
    assert ended.stderr.splitlines()[-1].startswith("SyntaxError: ")
    assert ended.record(0).startswith("77 rank 0 on n1: SyntaxError: ")


@pytest.mark.parametrize(
    ("line", "stdout", "record"),
    [
        ("", "thread\nhandler False\n", "0 done\n"),
        ("raise ValueError('boom')", "thread\nhandler True\n", "77 rank 0 on n1: ValueError: boom\n"),
    ],
)
def test_threads_and_exit_handlers_come_before_the_record_of_a_good_end_alone(alone, script, line, stdout, record):
    path = script(
        "import atexit, os, threading, time\n"
        "end = os.environ['SLURMDDP_RUN_DIR'] + '/logs/17/0.0/0.end'\n"
        "atexit.register(lambda: print('handler', os.path.exists(end)))\n"
        f"threading.Thread(target=lambda: (time.sleep(0.3), print('thread'))).start()\n{line}\n"
    )
    ended = alone(path)
    assert (ended.stdout, ended.record(0)) == (stdout, record)


@pytest.mark.parametrize(("line", "status"), [("", 76), ("raise ValueError('boom')", 77)])
def test_an_end_that_cannot_be_recorded_is_said(alone, script, line, status):
    ended = alone(script(f"import os, shutil\nshutil.rmtree(os.environ['SLURMDDP_RUN_DIR'])\n{line}\n"))
    path = ended.run.rank_record("17", "0.0", 0)
    assert ended.statuses == [status]
    assert f"Error: the end could not be recorded in {path}: No such file or directory\n" in ended.stderr


def test_an_agent_gets_the_error_too(alone, script, tmp_path):
    agents = tmp_path / "agent.json"
    ended = alone(
        script("raise ValueError('boom')"),
        TORCHELASTIC_ERROR_FILE=str(agents),
        SLURMDDP_STARTED_BY="torchrun",
        RANK="0",
        LOCAL_RANK="0",
        WORLD_SIZE="1",
        LOCAL_WORLD_SIZE="1",
    )
    assert agents.read_bytes() == ended.run.rank_error("17", "0.0", 0).read_bytes()


def test_a_child_that_the_program_forks_leaves_no_record(alone, script):
    path = script(
        "import os, sys\n"
        "if os.fork() == 0: sys.exit(5)\n"
        "print(os.waitstatus_to_exitcode(os.wait()[1]), os.listdir(os.environ['SLURMDDP_RUN_DIR'] + '/logs/17/0.0'))\n"
    )
    ended = alone(path)
    assert ended.stdout == "5 ['0.begin']\n"
    assert ended.statuses == [0]


def test_a_notice_does_not_kill_the_imports(alone, script):
    """It ends by itself, or a moment before as told."""
    path = script("import os, signal; os.kill(os.getpid(), signal.SIGUSR2); os.kill(os.getpid(), signal.SIGUSR1)")
    assert alone(path).statuses in ([0], [75])


def test_a_program_without_torch_runs_in_this_python_and_costs_no_torch(alone, script):
    path = script("import sys; print(sys.executable, 'torch' in sys.modules)")
    assert alone(path).stdout == f"{sys.executable} False\n"


def test_started_without_srun_it_says_so_at_once(alone, script):
    ended = alone(script("print('ran')"), SLURM_STEP_ID="x", SLURM_NTASKS="0")
    assert (ended.statuses, ended.stdout) == ([77], "")
    assert ended.stderr == "Error: SLURM_NTASKS='0' is not a whole number, 1 or more\n"


def test_a_wrong_option_of_the_bundled_worker_is_one_line(alone):
    ended = alone("--epoch", "3")
    assert ended.statuses == [77]
    assert ended.stderr.startswith("Error: ") and "--epochs" in ended.stderr and ended.stderr.count("\n") == 1
    assert ended.record(0).startswith("77 ")


ABSENT = """
import sys
class Absent:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in ("msgspec", "click", "jinja2", "submitit", "rich", "tomli_w"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent)
"""


def test_a_program_needs_nothing_but_torch_and_the_standard_library(alone, script):
    """In a container slurmddp is a folder that was mounted, and none of what it depends on is installed."""
    site = script(ABSENT, "sitecustomize.py")
    path = script(
        "import slurmddp, torch\n"
        "with slurmddp.init():\n"
        "    model = torch.nn.Linear(1, 1)\n"
        "    run = slurmddp.Checkpointer(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=1.0))\n"
        "    print('trained', sum(1 for _ in run.steps(3)))\n"
    )
    ended = alone(path, PYTHONPATH=str(site.parent))
    assert ended.statuses == [0], ended.stderr
    assert "trained 3" in ended.stdout


FSDP = """\
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
fsdp_config: {fsdp_version: 2, fsdp_reshard_after_forward: false}
mixed_precision: bf16
num_machines: 2
num_processes: 8
main_process_ip: 10.0.0.1
"""


def test_accelerate_launch_is_its_environment_and_its_script(alone, script, tmp_path):
    path = script(
        "import os, sys\n"
        "names = ('ACCELERATE_MIXED_PRECISION', 'ACCELERATE_USE_FSDP', 'FSDP_VERSION', 'FSDP_RESHARD_AFTER_FORWARD')\n"
        "print(sys.argv, [os.environ[name] for name in (*names, 'WORLD_SIZE', 'MASTER_ADDR')])\n"
    )
    (tmp_path / "fsdp.yaml").write_text(FSDP)
    words = ["-m", "accelerate.commands.launch", "--config_file", str(tmp_path / "fsdp.yaml"), path, "--lr", "1"]
    ended = alone(*words)
    assert ended.stdout == f"[{str(path)!r}, '--lr', '1'] ['bf16', 'true', '2', 'false', '1', '127.0.0.1']\n"
    ignored = "ignored: num_processes 8, num_machines 2, main_process_ip 10.0.0.1; the job has 1 rank on 1 node, which"
    assert ignored in ended.stderr and ended.statuses == [0]


def test_what_accelerate_refuses_is_one_line(alone, script):
    ended = alone("-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes=1", script("print(1)"))
    assert "Error: accelerate launch: You need to use at least 2 processes" in ended.stderr
    assert ended.statuses == [77] and "Traceback" not in ended.stderr


def test_accelerate_launch_without_accelerate_says_so(alone, script, tmp_path):
    (tmp_path / "accelerate").mkdir()
    (tmp_path / "accelerate/__init__.py").write_text("raise ModuleNotFoundError(name='accelerate')")
    words = ["-m", "accelerate.commands.launch", script("print(1)")]
    ended = alone(*words, PYTHONPATH=str(tmp_path))
    assert "has no accelerate; install accelerate there" in ended.stderr and ended.statuses == [77]


def test_a_disk_without_room_for_the_error_and_its_record_can_be_cured_by_another_attempt(alone, script):
    """Neither the traceback nor the exit record can be written; the hook is as that of torch.distributed."""
    path = script(
        "import os, shutil, sys\n"
        "sys.excepthook = lambda *_: sys.stderr.write('the traceback')\n"
        "shutil.rmtree(os.environ['SLURMDDP_RUN_DIR'] + '/logs')\n"
        "os.dup2(os.open('/dev/full', os.O_WRONLY), 2)\n"
        "raise OSError(28, 'No space left on device')\n"
    )
    assert alone(path).statuses == [76]

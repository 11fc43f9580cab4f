"""Failures of the program itself; and the general rules, which are tried last. Data only."""

from functools import partial
from typing import Final

from slurmddp.diagnose.rule_types import EXIT_STATUS, Rule, line_rule

_import_error = partial(
    Rule,
    key="import-error",
    what="the job's Python has no module {module}",
    advice="install it into the environment that the job activates; `which python` in the script shows which that is",
)

RULES: Final = (
    _import_error(
        pattern=r"^ModuleNotFoundError: No module named '?(?P<module>[\w.]+)",
        example="ModuleNotFoundError: No module named 'lightning'",
    ),
    _import_error(
        pattern=r"^(?:ImportError: (?P<what>.+)|OSError: (?P<file>\S+: cannot open shared object file).*)",
        example="ImportError: cannot import name 'Muon' from 'torch.optim'",
        what="an import failed: {what}{file}",
        advice="try the import on a node: srun python -c 'import NAME'; compare it with an environment that works",
    ),
    _import_error(
        pattern=r"(?:^|/)[^\s/]*python[^\s/]*: No module named (?P<module>\S+)",
        example="/usr/bin/python3: No module named slurmddp.worker",
        place="line",
    ),
    _import_error(
        pattern=r"python[^\s/]*: Error while finding module specification for '[^']*' "
        r"\(ModuleNotFoundError: No module named '(?P<module>[^']+)'\)",
        example="/usr/bin/python3: Error while finding module specification for 'pkg.train' "
        "(ModuleNotFoundError: No module named 'pkg')",
        place="line",
    ),
    _import_error(
        pattern=r"symbol lookup error: (?P<file>\S+): undefined symbol|"
        r"Could not load library (?P<name>lib\S+)\. Error: ",
        example="python3: symbol lookup error: /opt/torch/lib/libcudnn_cnn_infer.so.8: undefined symbol: "
        "_ZN15TracebackLoggerC1EPKc, version libcudnn_ops_infer.so.8",
        what="a library is incompatible with the others: {file}{name}",
        advice="install torch together with its CUDA libraries, and remove others from LD_LIBRARY_PATH",
        place="line",
    ),
    line_rule(
        key="command-missing",
        pattern=r"COMMAND (?P<command>\S+) cannot be started: (?P<why>.+)",
        example="Error: COMMAND './train' cannot be started: [Errno 2] No such file or directory: './train'",
        what="{command} cannot be started: {why}",
        advice="correct COMMAND: it must exist on every node and be executable",
    ),
    line_rule(
        key="command-missing",
        pattern=r"(?:execve\(\): (?P<path>(?!\S*/slurm_script:)[^:]+): No such file or directory|"
        r"line \d+: (?P<name>(?!/\S*/python[\d.]*:)[^:]+): (?:command not found|No such file or directory))",
        example="slurmstepd: error: execve(): torchrun: No such file or directory",
        what="the program {path}{name} was not found",
        advice="load or activate the environment that has it in the batch script, or give its full path",
    ),
    line_rule(
        key="not-executable",
        pattern=r"execve\(\): (?P<path>[^:]+): (?P<why>Permission denied|Exec format error)",
        example="slurmstepd: error: execve(): /home/me/train.sh: Permission denied",
        what="the program {path} cannot be executed: {why}",
        advice="chmod +x and a first line such as `#!/bin/bash`; or name the interpreter: `python train.py`",
    ),
    line_rule(
        key="segfault",
        pattern=r"Fatal Python error: (?:Segmentation fault|Bus error|Aborted)|Caught signal 11 \(Segmentation fault",
        example="Fatal Python error: Segmentation fault",
        what="a native library crashed",
        advice="export PYTHONFAULTHANDLER=1 and submit it again: Python then prints the line at which it crashed",
        again=None,
    ),
    Rule(
        key="interrupted",
        pattern=r"^KeyboardInterrupt\b",
        example="KeyboardInterrupt",
        what="the program was interrupted by SIGINT, as Ctrl-C sends it",
        advice="submit it again",
        again=True,
    ),
    line_rule(
        key="wrong-arguments",
        pattern=r"error: unrecognized arguments: (?P<arguments>--local[-_]rank\S*)",
        example="train.py: error: unrecognized arguments: --local-rank=0",
        what="the launcher passed {arguments}, which the script does not know",
        advice="start it with torchrun and read LOCAL_RANK from the environment, or add --local-rank to the parser",
    ),
    line_rule(
        key="wrong-arguments",
        pattern=r"^(?P<program>[\w./-]+): error: "
        r"(?P<why>unrecognized arguments: .+|the following arguments are required: .+|argument \S+: .+)",
        example="main.py: error: the following arguments are required: path",
        what="{program} was called with wrong arguments: {why}",
        advice="correct the command line; `--help` lists its arguments",
    ),
)

GENERAL: Final = (
    Rule(
        key=EXIT_STATUS,
        pattern=r"^exit status (?P<status>\d+)$",
        example="exit status 3",
        what="the program exited with status {status}",
        advice="read the last lines of the program's output",
        general=True,
    ),
    Rule(
        key="refused",
        pattern=r"^Error: (?P<why>.+)",
        example="Error: rank 0 found no checkpoint that can be used, and says why",
        what="{why}",
        advice="the message says what to do",
        again=None,
        general=True,
    ),
    Rule(
        key="exception",
        pattern=r"^(?P<error>[A-Za-z_][\w.]*(?:: .*|:)?)$",
        example="ValueError: batch 17 has a label of 12, there are 10 classes",
        what="the program raised {error}",
        advice="correct the program at the line that the traceback names",
        general=True,
    ),
)

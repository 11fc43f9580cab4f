"""Failures of the program itself; and the general rules, which are tried last. Data only."""

from functools import partial
from typing import Final

from slurmddp.diagnose.rule_types import EXIT_STATUS, Rule, end_rule, line_rule

_import_error = partial(
    Rule,
    key="import-error",
    what="the job's Python has no module {module}",
    advice="install it into the environment that the job activates; `which python` in the script shows which that is",
)

RULES: Final = (
    line_rule(
        key="exception",
        pattern=r"^(?P<text>\w+(?:Error|Exception)\(['\"].+\))$",
        example="TypeError(\"__init__() got an unexpected keyword argument 'num_processes'\")",
        what="the program raised {text}",
        advice="correct the program or its configuration at what the lines above name",
        role="symptom",
        sure="likely",
        again=False,
        general=True,
    ),
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
        pattern=r"^RuntimeError: Failed to import (?P<module>[\w.]+) because of .*?traceback\): (?P<why>.+)",
        example="RuntimeError: Failed to import transformers.models.llama because of the following error (look up to "
        "see its traceback): cannot import name 'x' from 'y'",
        what="the import of {module} failed: {why}",
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
        r"error while loading shared libraries: (?P<missing>[^:]+)|(?P<version>symbol \S+ version \S+) not defined in|"
        r"Could not load library (?P<name>lib\S+)\. Error: ",
        example="python3: symbol lookup error: /opt/torch/lib/libcudnn_cnn_infer.so.8: undefined symbol: "
        "_ZN15TracebackLoggerC1EPKc, version libcudnn_ops_infer.so.8",
        what="a library is missing, or is incompatible with the others: {file}{missing}{version}{name}",
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
        r"line \d+: (?P<name>(?!cd:|/\S*/python[\d.]*:)[^:]+): (?:command not found|No such file or directory))",
        example="slurmstepd: error: execve(): torchrun: No such file or directory",
        what="the program {path}{name} was not found",
        advice="load or activate the environment that has it in the batch script, or give its full path",
    ),
    line_rule(
        key="command-missing",
        pattern=r"(?:nohup|env|timeout|nice): (?:failed to run command )?\W{1,3}(?P<path>.+?)\W{1,3}: No such file",
        example="nohup: failed to run command 'for run in {1..10}; do train; done': No such file or directory",
        what="there is no program {path}",
        advice="correct its name or path; a line of the shell needs one: bash -c '...'",
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
        pattern=r"Fatal Python error: (?:Segmentation fault|Bus error|Aborted|Illegal instruction)|(?:Caught signal "
        r"11 \(|Signal: "
        r")Segmentation fault",
        example="Fatal Python error: Segmentation fault",
        what="a native library crashed",
        advice="export PYTHONFAULTHANDLER=1 and submit it again: Python then prints the line at which it crashed",
        again=None,
    ),
    line_rule(
        key="segfault",
        pattern=r"\w\[\d+\]: segfault at .* in (?P<library>[^\s[]+)|traps: .*general protection(?: fault)?.* in "
        r"(?P<where>[^\s[]+)",
        example="python[3494041]: segfault at 34 ip 00007f3d56e45970 sp 00007ffd241f9130 error 4 in "
        "libhsa-runtime64.so[45970,7f3d56e1d000+117000] likely on CPU 0 (core 0, socket 0)",
        what="a native library crashed, says the kernel: {library}{where}",
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
        key="terminal-closed",
        pattern=r"SignalException: Process \d+ got signal: 1$|Received (?:1|Signals\.SIGHUP) death signal",
        example="torch.distributed.elastic.multiprocessing.api.SignalException: Process 4711 got signal: 1",
        what="the terminal or the ssh session that the launcher was started from was closed (SIGHUP)",
        advice="submit it with sbatch, or start it inside tmux or with setsid",
        again=True,
    ),
    line_rule(
        key="interrupted",
        pattern=r"Main process received SIGINT, exiting|SignalException: Process \d+ got signal: 2$|"
        r"Received (?:2|Signals\.SIGINT) death signal",
        example="[2025-08-15 08:42:11,420] [INFO] [launch.py:328:sigkill_handler] Main process received SIGINT, "
        "exiting",
        what="the launcher was interrupted by SIGINT, as Ctrl-C sends it, and ended its ranks",
        advice="submit it again",
        again=True,
    ),
    Rule(
        key="no-terminal",
        pattern=r"EOFError: EOF when reading a line",
        example="EOFError: EOF when reading a line",
        what="the program asks for input, and a job has no terminal",
        advice="give the answer by an option or a variable of the program",
    ),
    line_rule(
        key="wrong-arguments",
        pattern=r"error: unrecognized arguments: (?P<arguments>--local[-_]rank\S*)$",
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
        pattern=r"^(?P<error>(?:Value|Type|Key|Index|Attribute|Name|UnboundLocal|Assertion|Syntax|Indentation|"
        r"ZeroDivision|"
        r"NotImplemented|Recursion)Error\b.*)$",
        example="ValueError: batch 17 has a label of 12, there are 10 classes",
        what="the program raised {error}",
        advice="correct the program at the line that the traceback names",
        general=True,
    ),
    Rule(
        key="exception",
        pattern=r"^(?P<error>[A-Za-z_][\w.]*(?:: .*|:)?)$",
        example="mypackage.errors.BackendError: queue 3 is closed",
        what="the program raised {error}",
        advice="read the traceback: it names the line of the program that raised it",
        again=None,
        general=True,
    ),
)

LAST_WORDS: Final = (
    end_rule(
        key="nccl-failed",
        pattern=r"(?:(?P<file>[\w.-]+\.(?:cc|h|cpp|c):\d+) )?NCCL WARN (?!.*(?:Got async event|libibverbs|[Pp]lugin|"
        r"is not supported|numa_balancing|iommu|MSCCL|[Cc]losed by|falling back|[Rr]etr))"
        r"(?P<why>.*(?:fail|Fail|invalid|Invalid|[Ee]rror|abort|mismatch|[Tt]imed? ?out|[Uu]nhandled|corrupt).*)",
        example="n1:24:24 [0] transport/p2p.cc:272 NCCL WARN Cuda mem import failed",
        what="NCCL failed: {why} ({file})",
        advice="export NCCL_DEBUG=INFO and submit it again: the lines above this one then say more",
    ),
    end_rule(
        key="not-finite",
        pattern=r"(?:\b|_)loss\w*['\"]?\s*[:=]\s*['\"]?(?P<value>-?(?i:nan|inf))\b",
        example="Epoch [1][658/742] lr: 5.000e-05, eta: 2:15:01, loss_cls: nan, loss_bbox: nan, loss: nan",
        what="the loss is {value}: the training has diverged",
        advice="use a lower learning rate, warmup or gradient clipping; torch.autograd.set_detect_anomaly(True) shows "
        "where it begins",
        again=False,
    ),
    end_rule(
        key="last-words",
        pattern=r"^ *what\(\): +(?P<text>.+)|^terminate called after throwing an instance of "
        r"'(?P<kind>[^']+)'|"
        r"(?:^|[\s\]|:])\[?(?!fatal: not a git)(?:(?i:fatal(?: error)?|critical|panic(?:ked)?)|[Ee]rror|ERROR)"
        r"(?:\]|\b)(?: ?[:!-]+ *|(?<=ERROR) |(?<=FATAL) |(?<=\]) )(?P<why>[^\s\d].+)",
        example="[worker 3] FATAL: the parameter server has gone away",
        what="its last words are: {text}{kind}{why}",
        advice="read what stands above them, too: no rule knows them",
        general=True,
    ),
    end_rule(
        key="last-words",
        pattern=r"^(?P<text>.*\b(?i:aborted|core dumped|assertion .* failed|unrecoverable|cannot "
        r"continue).*)",
        example="python: alloc.c:12: grow: Assertion `size > 0' failed.",
        what="its last words are: {text}",
        advice="read what stands above them, too: no rule knows them",
        general=True,
    ),
)
"""For the last lines of an output in which nothing else shows a cause."""

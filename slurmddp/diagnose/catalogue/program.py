"""What goes wrong in the program itself. Data only."""

from typing import Final

from slurmddp.diagnose.model import Rule

RULES: Final = (
    Rule(
        key="import-error",
        pattern=r"^ModuleNotFoundError: No module named '?(?P<module>[\w.]+)",
        example="ModuleNotFoundError: No module named 'lightning'",
        what="the job's Python has no module {module}",
        advice="install it into the environment that the job uses, or name another: --venv, --conda, --python",
    ),
    Rule(
        key="import-error",
        pattern=r"^(?:ImportError: (?P<what>.+)|OSError: (?P<file>\S+: cannot open shared object file).*)",
        example="ImportError: cannot import name 'Muon' from 'torch.optim'",
        what="an import failed: {what}{file}",
        advice="compare the environment of the job with the one in which it works: slurmddp doctor",
    ),
    Rule(
        key="import-error",
        pattern=r"(?:^|/)[^\s/]*python[^\s/]*: No module named (?P<module>\S+)",
        example="/usr/bin/python3: No module named slurmddp.worker",
        what="the job's Python has no module {module}",
        advice="install it into the environment that the job uses, or name another: --venv, --conda, --python",
        place="line",
    ),
    Rule(
        key="import-error",
        pattern=r"python[^\s/]*: Error while finding module specification for '[^']*' "
        r"\(ModuleNotFoundError: No module named '(?P<module>[^']+)'\)",
        example="/usr/bin/python3: Error while finding module specification for 'pkg.train' "
        "(ModuleNotFoundError: No module named 'pkg')",
        what="the job's Python has no module {module}",
        advice="install it into the environment that the job uses, or name another: --venv, --conda, --python",
        place="line",
    ),
    Rule(
        key="import-error",
        pattern=r"symbol lookup error: (?P<file>\S+): undefined symbol|"
        r"Could not load library (?P<name>lib\S+)\. Error: ",
        example="python3: symbol lookup error: /opt/torch/lib/libcudnn_cnn_infer.so.8: undefined symbol: "
        "_ZN15TracebackLoggerC1EPKc, version libcudnn_ops_infer.so.8",
        what="a library does not fit the others: {file}{name}",
        advice="install torch and its CUDA libraries together, and let LD_LIBRARY_PATH name no others",
        place="line",
    ),
    Rule(
        key="command-missing",
        pattern=r"COMMAND (?P<command>\S+) cannot be started: (?P<why>.+)",
        example="Error: COMMAND './train' cannot be started: [Errno 2] No such file or directory: './train'",
        what="{command} cannot be started: {why}",
        advice="correct COMMAND; it has to exist on every node, and to be executable",
        place="line",
    ),
    Rule(
        key="command-missing",
        pattern=r"(?:execve\(\): (?P<path>(?!\S*/slurm_script:)[^:]+): No such file or directory|"
        r"line \d+: (?P<name>(?!/\S*/python[\d.]*:)[^:]+): (?:command not found|No such file or directory))",
        example="slurmstepd: error: execve(): torchrun: No such file or directory",
        what="the program {path}{name} is not there",
        advice="load or activate what it comes with (--module, --venv, --conda), or give its full path",
        place="line",
    ),
    Rule(
        key="not-executable",
        pattern=r"execve\(\): (?P<path>[^:]+): (?P<why>Permission denied|Exec format error)",
        example="slurmstepd: error: execve(): /home/me/train.sh: Permission denied",
        what="the program {path} cannot be executed: {why}",
        advice="chmod +x, and a first line as `#!/bin/bash`; or name what runs it, as `python train.py`",
        place="line",
    ),
    Rule(
        key="segfault",
        pattern=r"Fatal Python error: (?:Segmentation fault|Bus error|Aborted)|Caught signal 11 \(Segmentation fault",
        example="Fatal Python error: Segmentation fault",
        what="a library in C crashed",
        advice="--env PYTHONFAULTHANDLER=1 and submit again: Python then says in which line it was",
        again=None,
        place="line",
    ),
    Rule(
        key="interrupted",
        pattern=r"^KeyboardInterrupt\b",
        example="KeyboardInterrupt",
        what="the program was interrupted by hand (SIGINT)",
        advice="submit it again when it is wanted",
        again=True,
    ),
    Rule(
        key="download-failed",
        pattern=r"HTTPS?ConnectionPool|Max retries exceeded with url|urlopen error|Couldn't (?:connect to|reach)|"
        r"LocalEntryNotFoundError|We couldn't connect to",
        example="requests.exceptions.ConnectionError: HTTPSConnectionPool(host='hf.co', port=443): Max retries "
        "exceeded with url: /api/models/gpt2 (Caused by NewConnectionError: [Errno 101] Network is unreachable)",
        what="the program could not download something; nodes often have no way to the internet",
        advice="download it on the login node before, to a folder that the nodes see (HF_HOME, TORCH_HOME)",
        again=None,
    ),
)

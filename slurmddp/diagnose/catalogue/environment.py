"""Failures of the environment: shells, modules, conda, containers, libraries, compilers. Data only."""

from functools import partial
from typing import Final

from slurmddp.diagnose.rule_types import Rule, line_rule

_script = partial(line_rule, key="shell-setup")
_library = partial(Rule, key="library-mixed")
_container = partial(line_rule, key="container-failed")
_toolkit = partial(line_rule, key="cuda-toolkit")
_compile = partial(Rule, key="compile-failed", again=None)

RULES: Final = (
    _container(
        pattern=r"https?://\S+ returned error code: ?(?P<status>[45]\d\d [A-Z]\w*(?: [A-Z]\w*)*)|"
        r"^(?=.*(?:/v2/|manifest|registry|image)).*(?:unexpected status(?: code)? .*|status code): ?"
        r"(?P<code>[45]\d\d [A-Z]\w*(?: [A-Z]\w*)*)",
        example="slurmstepd: error: pyxis:     [ERROR] URL https://registry-1.docker.io/v2/a/manifests/b returned "
        "error code: 401 Unauthorized",
        what="the registry did not give the image of the container: {status}{code}",
        advice="check the image's name (REGISTRY#IMAGE for enroot) and the credentials (~/.config/enroot/.credentials)",
    ),
    line_rule(
        key="library-missing",
        pattern=r"\bld(?:\.\w+)?: cannot find -l(?!aio\b|cufile\b)(?P<name>[\w.+-]+)",
        example="/usr/bin/ld: cannot find -lcuda",
        what="a program is compiled when the job starts, and the linker finds no lib{name}",
        advice="install it, or put its folder into LIBRARY_PATH; libcuda is with the driver, or in CUDA's stubs",
    ),
    _script(
        pattern=r"Run 'conda init' before 'conda activate'|"
        r"Your shell has not been properly configured to use '(?:conda|mamba) activate'",
        example="CommandNotFoundError: Your shell has not been properly configured to use 'conda activate'.",
        what="`conda activate` does not work in the shell of the batch script",
        advice='put `eval "$(conda shell.bash hook)"` before it, or call the environment\'s python by its full path',
    ),
    _script(
        pattern=r"line \d+: (?:module|ml): command not found",
        example="/var/spool/slurmd/job00017/slurm_script: line 31: module: command not found",
        what="the shell of the batch script has no command `module`",
        advice="if the cluster has modules, source their set-up first, as in `source /etc/profile.d/modules.sh`; else "
        "leave the module out",
    ),
    _script(
        pattern=r"EnvironmentNameNotFound: Could not find conda environment: (?P<name>\S+)|"
        r"EnvironmentLocationNotFound: Not a conda environment: (?P<path>\S+)",
        example="EnvironmentNameNotFound: Could not find conda environment: my-conda-ENV",
        what="the conda environment {name}{path} does not exist",
        advice="`conda env list` lists them; on the node conda must read the same folders as on the login node",
    ),
    _script(
        pattern=r"following module\(s\) are unknown:(?: (?P<name>.+))?|Unable to locate a modulefile for (?P<file>.+)|"
        r"following module\(s\) or extension\(s\) exist but cannot be loaded as requested",
        example='Lmod has detected the following error:  The following module(s) are unknown: "slurm/summit"',
        what="an environment module does not exist: {name}{file}",
        advice="`module spider NAME` or `module avail` lists the versions; partitions may have different modules",
    ),
    line_rule(
        key="not-executable",
        pattern=r": (?P<interpreter>/[^:]+): bad interpreter: No such file or directory",
        example="bash: ./Hello.php: /usr/bin/php: bad interpreter: No such file or directory",
        what="the first line of a script names the program {interpreter}, which the node does not have",
        advice="correct the first line; a moved or copied virtual environment must be made anew",
    ),
    _container(
        pattern=r"FATAL: +could not open image (?P<image>[^:]+): (?P<why>.+)",
        example="FATAL:   could not open image /path/to/container.sif: unknown image format/type",
        what="the container image cannot be opened: {image}: {why}",
        advice="correct the path: it must exist on every node; pull or build the image again if it is incomplete",
    ),
    _container(
        pattern=r"(?:enroot-\w+: |\[ERROR\] )(?P<why>(?:failed to (?:mount|\w+)|Command not found|No such file or "
        r"directory|"
        r"Could not process JSON|Image format not supported)\b.*)",
        example="slurmstepd: error: pyxis:     [ERROR] Command not found: nvidia-container-cli, see "
        "https://github.com/NVIDIA/libnvidia-container",
        what="enroot could not start the container: {why}",
        advice="correct the path or its permissions on the node (NFS may deny root), or report the node: it lacks "
        "a program",
    ),
    _container(
        pattern=r"pyxis: +(?:\[ERROR\] )?(?P<why>\w[\w-]*: (?:cannot|can't|unable to|failed to) .+|"
        r"(?! *\[INFO\]).*(?:Permission denied|No space left on device|[Ss]quashfs|Operation not permitted|"
        r"unauthorized|not found).*)|"
        r"[Ff]ailed to (?:create|unshare) .*namespace|"
        r"(?:unsquashfs|mksquashfs|squashfuse\w*|newuidmap|fusermount): (?P<how>.*(?i:fail|error|denied|not|cannot).*)",
        example="slurmstepd: error: pyxis:     mkdir: cannot create directory '/run/enroot': Permission denied",
        what="the container could not be made ready: {why}{how}",
        advice="enroot needs folders that it may write to and that have space (ENROOT_RUNTIME_PATH, _CACHE_PATH, "
        "_DATA_PATH); "
        "a registry needs a name and a password (~/.config/enroot/.credentials)",
    ),
    _container(
        pattern=r"FATAL: +(?P<why>(?:container creation failed|While making image|Unable to (?:pull|build|handle)|"
        r"[Ww]hile \w+ing|[Ii]mage .*|.*(?:permission denied|not permitted|squashfs|no such file|user "
        r"?namespace).*).*)",
        example="FATAL:   container creation failed: mount /data->/data error: while mounting /data: mount source "
        "/data "
        "doesn't exist",
        what="apptainer could not start the container: {why}",
        advice="correct the image or the bound folder: both must exist on every node",
    ),
    _container(
        pattern=r"pyxis: (?P<why>failed to import docker image|container start failed with error code: \d+|"
        r"no space left.*)|Error response from daemon: (?P<daemon>.+)",
        example="slurmstepd: error: pyxis: container start failed with error code: 1",
        what="the container could not be started: {why}{daemon}",
        advice="read the lines below it; check the image's name, the registry's password and the space of the image's "
        "folders",
        sure="likely",
        general=True,
    ),
    _container(
        pattern=r"nvidia-container-cli: \w+ error: (?P<why>.+)",
        example="nvidia-container-cli: initialization error: nvml error: driver/library version mismatch",
        what="the container could not get the node's GPUs: {why}",
        advice="run `srun nvidia-smi` on the node; if it fails, submit it with -x NODE and report the node",
    ),
    _library(
        pattern=r"version `(?P<version>(?:GLIBC|GLIBCXX|CXXABI)_[\d.]+)' not found",
        example="ImportError: /usr/lib64/libstdc++.so.6: version `GLIBCXX_3.4.20' not found",
        what="a package needs {version}, and the C or C++ library that was loaded is older",
        advice="put the lib folder of the conda environment or of a newer gcc module first in LD_LIBRARY_PATH; for "
        "GLIBC itself use a container",
        key="library-old",
        place="line",
    ),
    _library(
        pattern=r"(?<!lookup error: )(?<!\S)(?P<file>\S+\.so[.\d]*): undefined symbol: (?P<symbol>\w+)",
        example="ImportError: /home/me/venv/lib/python3.12/site-packages/torch/lib/libtorch_cuda.so: undefined symbol: "
        "ncclCommResume",
        what="{file} was built for another version of a library than the one that was loaded: it lacks {symbol}",
        advice="reinstall that package for the installed torch; remove other NCCL and CUDA folders from "
        "LD_LIBRARY_PATH",
    ),
    _library(
        pattern=r"numpy\.dtype size changed, may indicate binary incompatibility",
        example="ValueError: numpy.dtype size changed, may indicate binary incompatibility. Expected 96 from C header, "
        "got 88 from PyObject",
        what="a package was built for another version of NumPy",
        advice='install "numpy<2", or newer versions of the packages that use it',
    ),
    _toolkit(
        pattern=r"CUDA_HOME (?:environment variable is not set|does not exist, unable to compile)",
        example="OSError: CUDA_HOME environment variable is not set. Please set it to your CUDA install root.",
        what="an extension must be compiled, and no CUDA toolkit was found",
        advice="load a CUDA module with torch's version and export CUDA_HOME, or install the extension as a wheel",
    ),
    _toolkit(
        pattern=r"The detected CUDA version \((?P<found>[\d.]+)\) mismatches the version that was used to compile|"
        r"Installed CUDA version (?P<installed>[\d.]+) does not match the version torch was compiled with [\d.]+, "
        r"unable",
        example="deepspeed.ops.op_builder.builder.CUDAMismatchException: >- DeepSpeed Op Builder: Installed CUDA "
        "version 11.7 does not match the version torch was compiled with 12.1, unable to compile cuda/cpp extensions "
        "without a matching cuda version.",
        what="the CUDA toolkit {found}{installed} is not the version that torch was built with",
        advice="load the CUDA module of torch.version.cuda, or install torch for this toolkit",
    ),
    _compile(
        pattern=r"cannot import name '(?P<name>\w+)' from '(?P<module>triton[\w.]*)'",
        example="ImportError: cannot import name 'triton_key' from 'triton.compiler.compiler' "
        "(/opt/triton/compiler.py)",
        what="the installed triton does not fit this torch: {module} has no {name}",
        advice="install the triton that torch asks for: `pip check` names it",
    ),
    _compile(
        pattern=r"nvcc fatal +: (?P<why>.+)",
        example="nvcc fatal   : Unsupported gpu architecture 'compute_86'",
        what="nvcc cannot compile for this GPU or with these options: {why}",
        advice="load a CUDA toolkit that knows the GPU, or set TORCH_CUDA_ARCH_LIST; `nvcc --version` names it",
        place="line",
    ),
    _compile(
        pattern=r"LLVM ERROR: (?P<why>.+)|(?P<how>Failed to translate TritonGPU to LLVM IR.*)",
        example="LLVM ERROR: Failed to translate TritonGPU to LLVM IR.",
        what="the compiler of Triton or torch.compile failed: {why}{how}",
        advice="export TORCH_COMPILE_DISABLE=1 and submit it again; install the triton that torch asks for",
        place="line",
    ),
    _compile(
        pattern=r"CalledProcessError: Command .{0,3}(?P<compiler>[\w./-]*(?:gcc|[gc]\+\+|/cc|clang|nvcc|ninja|"
        r"hipcc|ptxas|cmake)"
        r"[\d.-]*)\b(?P<library>(?=.*-lcuda\b)?)",
        example="subprocess.CalledProcessError: Command '['/usr/bin/gcc', '/tmp/x/main.c', '-O3', '-lcuda']' returned "
        "non-zero exit status 1.",
        what="{compiler} failed to compile or link, for an extension, Triton or torch.compile: its lines above say why",
        advice="the node needs the compiler, Python's headers, CUDA's and libcuda.so: load the modules of gcc and "
        "CUDA; build an extension once before the job",
    ),
    line_rule(
        key="library-missing",
        pattern=r"Could not (?:load bitsandbytes native library: |find the bitsandbytes CUDA binary at )"
        r"(?P<library>[^:]+)",
        example="Could not load bitsandbytes native library: /opt/bitsandbytes/libbitsandbytes_cpu.so: cannot open "
        "shared object file: No such file or directory",
        what="bitsandbytes has no library that was built for this CUDA: {library}",
        advice="install bitsandbytes from its wheel, or build it; unset BNB_CUDA_VERSION",
        role="symptom",
        sure="likely",
    ),
    _compile(
        pattern=r"Ninja is required to load C\+\+ extensions|Error building extension '(?P<name>[^']+)",
        example="RuntimeError: Error building extension 'fused_adam'",
        what="an extension of torch could not be compiled: {name}",
        advice="read the compiler's lines above; build it once before the job, with ninja and the right gcc and CUDA",
    ),
    _compile(
        pattern=r"Failed to find C compiler|Cannot find a working triton installation|libcuda\.so cannot found",
        example="RuntimeError: Failed to find C compiler. Please specify via CC environment variable.",
        what="torch.compile or Triton found no C compiler, no driver library or no Triton on the node",
        advice="load a gcc module on the node (export CC=gcc), install triton, or train without torch.compile",
    ),
    _compile(
        pattern=r"out of resource: (?P<what>[\w ]+), Required: (?P<need>\d+), Hardware limit: (?P<limit>\d+)",
        example="triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 188416, Hardware "
        "limit: 166912. Reducing block sizes or `num_stages` may help.",
        what="a Triton kernel needs {need} of the GPU's {what}, and the GPU has {limit}",
        advice="choose a smaller block size or num_stages, or a GPU with more shared memory",
    ),
    _compile(
        pattern=r"BackendCompilerFailed: backend='(?P<backend>\w+)' raised:?(?P<why>.*)|(?:Inductor|"
        r"TorchRuntime)Error: (?P<error>.*)|"
        r"_dynamo\.exc\.(?P<kind>\w+: .*)",
        example="torch._dynamo.exc.BackendCompilerFailed: backend='inductor' raised:",
        what="torch.compile could not compile the model: {why}{error}{kind}",
        general=True,
        advice="export TORCH_COMPILE_DISABLE=1 and submit it again, to see whether it is torch.compile alone",
    ),
    Rule(
        key="flash-attention-missing",
        pattern=r"FlashAttention\d? has been toggled on, but it cannot be used",
        example="ImportError: FlashAttention2 has been toggled on, but it cannot be used due to the following error: "
        "the package for FlashAttention2 doesn't seem to be installed.",
        what="the model asks for FlashAttention, which is not installed or does not fit",
        advice='install flash-attn for the installed torch, or use attn_implementation="sdpa"',
    ),
)

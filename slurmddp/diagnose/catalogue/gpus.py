"""Failures of GPUs, of their drivers and libraries. Data only."""

from functools import partial
from typing import Any, Final

from slurmddp.diagnose.rule_types import Rule, line_rule

_AVOID = "submit it with -x NODE to avoid the node, and report it to the cluster's administrators"
_BLOCKING = "export CUDA_LAUNCH_BLOCKING=1 and submit it again: the traceback then names the line"

_XID = r"(?:Xid \((?:PCI:)?[0-9a-fA-F]{4}:[^)]*\): |XidCriticalError: Xid=|X[Ii][Dd](?: (?i:errors?))?:? )"
"""How the driver, Kubernetes and DCGM write the driver's numbers of failures."""

_no_gpu = partial(Rule, key="no-gpu")
_broken = partial(line_rule, key="gpu-broken", advice=_AVOID, again=True)
_driver_old = partial(
    line_rule,
    key="driver-old",
    what="the driver of the node is too old for this torch or for one of its extensions",
    advice="install a torch that was built for an older CUDA, or choose nodes with a newer driver",
)
_not_built = partial(
    line_rule,
    key="kernels-missing",
    what="torch, or an extension of it, was not built for the GPUs of the node",
    advice="install one that was, or choose other nodes (-C, -p); `sinfo -o '%P %G %f'` lists them",
)
_bad_access = partial(
    line_rule,
    key="illegal-address",
    what="a kernel on the GPU accessed memory that it may not access",
    advice=_BLOCKING,
    again=None,
)
_math_library = partial(Rule, key="math-library", again=None, sure="likely")


def _xid(numbers: str, text: str, what: str, advice: str, **changed: Any) -> Rule:
    """Return the rule of some of the driver's Xid numbers, by what NVIDIA's catalogue asks for."""
    pattern = rf"\b{_XID}(?P<xid>{numbers})\b"
    return _broken(pattern=pattern, example=f"NVRM: Xid (PCI:{text}", what=what, advice=advice, **changed)


XIDS: Final = (
    _xid(
        "8|1[13]|31|32|43|6[89]",
        "0000:00:06): 31, pid=79749, name=exe, Ch 0000000a, intr 00000000. MMU Fault: ENGINE GRAPHICS",
        "the driver stopped the program on a GPU: it accessed memory that it may not access (Xid {xid})",
        f"{_BLOCKING}; if several programs fail on the node, avoid it: -x NODE",
        key="illegal-address",
        again=None,
        sure="likely",
    ),
    _xid(
        "94",
        "0000:3b:00): 94, pid='<unknown>', name=<unknown>, Ch 00000008",
        "the memory of a GPU had an error that was contained to the program (Xid {xid})",
        "submit it again; ask the administrators to reset the GPU soon",
    ),
    _xid(
        "46|48|62|64|95|109|110|119|120|136|140|143",
        "0002:00:00): 119, pid=1582259, name=nvc:[driver], Timeout after 6s of waiting for RPC response from GPU1 GSP!",
        "a GPU stopped and needs a reset (Xid {xid})",
        "submit it with -x NODE; the administrators can drain the node and run `nvidia-smi --gpu-reset`",
    ),
    _xid(
        "74|14[4-9]|150",
        "0000:b9:00): 74, pid=<unknown>, name=<unknown>, NVLink: fatal error detected on link 6(0x10000, 0x0)",
        "an NVLink of the node failed (Xid {xid})",
        _AVOID,
    ),
    _xid(
        "54|78|79",
        "0000:3b:00): 79, pid=4711, GPU has fallen off the bus.",
        "the driver lost a GPU: the node must be restarted (Xid {xid})",
        "submit it with -x NODE; the administrators must drain and reboot the node, and check its power and slot",
    ),
)
"""The numbers that end programs. Others (45, 63, 92, 154) tell of the cleaning up, or of nothing that ends one."""

_KERNEL: Final = (
    _broken(
        pattern=r"NVRM: (?:.*(?P<gpu>GPU ?\d+))?.*(?:_?kgsp\w*(?:Timeout|IsHeartbeatTimedOut)|GSP (?:RPC )?[Tt]imeout|"
        r"waiting for RPC (?:response )?from|GSP .*(?:crash|[Hh]alted))",
        example="[   24.302465] NVRM: GPU6 _kgspIsHeartbeatTimedOut: Heartbeat timed out, currentTimeMs 812751949",
        what="the firmware (GSP) of a GPU does not answer any more: {gpu}",
        advice="submit it with -x NODE; the administrators can reset the GPU or reboot the node, and update its driver",
    ),
    _broken(
        pattern=r"SXid \([^)]*\): (?P<number>\d+), Fatal|NVSwitch .*[Ff]atal error",
        example="nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
        what="an NVSwitch of the node failed (SXid {number})",
    ),
    _broken(
        pattern=r"NVRM: (?:.*RmInitAdapter failed|.*GPU crash dump|.*rm_init_adapter failed|.*failed to copy vbios|"
        r".*NVIDIA probe routine failed|.*FSP command timed out|.*Reset required)|Unable to determine the device "
        r"handle for GPU.*Unknown Error",
        example="NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x22:0x56:762)",
        what="the driver could not start a GPU of the node",
    ),
    _broken(
        pattern=r"(?:amdgpu|drm:).*(?P<why>GPU reset(?:\(\d+\))? (?:begin|fail|succe)|ring \S+ timeout|VRAM is lost|"
        r"MES failed|(?i:failed to (?:evict|remove hardware queue))|"
        r"GPU recovery|uncorrectable|failed to (?:load ucode|resume)|PSP .*failed)|HW Exception by GPU node|GPU Hang",
        example="amdgpu 0000:03:00.0: amdgpu: GPU reset begin!",
        what="an AMD GPU hung and was reset: {why}",
        sure="likely",
    ),
    _bad_access(
        pattern=r"amdgpu.*(?:retry|gfxhub\S*|mmhub\S*) page fault|HSA_STATUS_ERROR_(?:MEMORY|EXCEPTION|ILLEGAL|"
        r"INVALID_P)\w*",
        example="amdgpu 0000:03:00.0: amdgpu: [gfxhub0] retry page fault (src_id:0 ring:0 vmid:8 pasid:32769)",
        advice="export AMD_SERIALIZE_KERNEL=3 and submit it again: the traceback then names the line",
        sure="likely",
    ),
    line_rule(
        key="fabric-manager",
        pattern=r"(?:Error 802: |CUDA error: |\b)system not yet initialized|(?:cudaErrorSystemNotReady|"
        r"SYSTEM_NOT_READY)|"
        r"(?i:fabric ?manager).*(?i:error|failed|not running|mismatch)",
        example="Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized (Triggered "
        "internally at CUDAFunctions.cpp:109.)",
        what="the NVSwitches of the node are not ready (CUDA error 802): its Fabric Manager does not run, or has "
        "another "
        "version than the driver",
        advice="submit it with -x NODE; the administrators can start nvidia-fabricmanager, of the driver's version",
        again=True,
    ),
)
"""What kernels, drivers and their services print."""

RULES: Final = (
    _no_gpu(
        pattern=r"Found no NVIDIA driver on your system|libcuda\.so\.1: cannot open shared object file",
        example="RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and "
        "installed a driver",
        what="the program needs a GPU, and the node has no NVIDIA driver",
        advice="ask for GPUs (--gpus-per-node) in a partition that has them; in a container use --nv or --gpus all",
    ),
    _no_gpu(
        pattern=r"[Nn]o (?:CUDA|HIP) GPUs are available|no (?:CUDA|ROCm)-capable device is detected|"
        r"CUDA_ERROR_NO_DEVICE|hipErrorNoDevice|^No devices were found$|"
        r"No supported gpu backend found!|"
        r"`CUDAAccelerator` can not run on your system",
        example="RuntimeError: No CUDA GPUs are available",
        what="the program needs a GPU, and the job has none",
        advice="ask for them (--gpus-per-node), and do not set CUDA_VISIBLE_DEVICES yourself",
    ),
    _no_gpu(
        pattern=r"ProcessGroupNCCL is only supported with GPUs, no GPUs found",
        example="ValueError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!",
        what="the program asked for NCCL, and there is no GPU",
        advice='ask for GPUs (--gpus-per-node), or use the backend "gloo"',
    ),
    _no_gpu(
        pattern=r"no CUDA on (?P<host>\S+): (?P<why>[^;]+)",
        example="Error: no CUDA on n1: there is no NVIDIA driver; or ask for --device cpu",
        what="no CUDA on {host}: {why}",
        advice="ask for GPUs (--gpus-per-node) in a partition that has them, or train with --device cpu",
        place="line",
    ),
    _no_gpu(
        pattern=r"No backend type associated with device type (?P<device>\w+)",
        example="RuntimeError: No backend type associated with device type cpu",
        what="a collective was given a tensor on the {device}, which the process group's backend does not support",
        advice='move the tensor to the GPU, or use init_process_group("cpu:gloo,cuda:nccl")',
    ),
    _no_gpu(
        pattern=r"(?:/dev/kfd|/dev/dri/\S+).*(?P<why>Permission denied|No such file)|ROCk module is NOT loaded",
        example="Unable to open /dev/kfd read-write: Permission denied",
        what="the program may not open the AMD GPUs of the node: {why}",
        advice="ask for GPUs (--gpus-per-node); the user must be in the groups render and video, in a container too",
        place="line",
    ),
    Rule(
        key="torch-without-cuda",
        pattern=r"Distributed package doesn't have NCCL built in",
        example="RuntimeError: Distributed package doesn't have NCCL built in",
        what="this torch was built without NCCL: one for the CPU, for macOS or for Windows",
        advice='install torch with CUDA into the job\'s environment, or use the backend "gloo"',
    ),
    Rule(
        key="torch-without-cuda",
        pattern=r"Torch not compiled with CUDA enabled",
        example="AssertionError: Torch not compiled with CUDA enabled",
        what="this torch was built without CUDA",
        advice="install torch with CUDA into the job's environment, or train on the CPU with gloo",
    ),
    _driver_old(
        pattern=r"NVIDIA driver on your system is too old \(found version (?P<version>\d+)\)",
        example="RuntimeError: The NVIDIA driver on your system is too old (found version 11040). Please update your "
        "GPU driver",
    ),
    _driver_old(
        pattern=r"CUDA driver version is insufficient for CUDA runtime version|"
        r"NCCL WARN CUDA Driver version found is \d+\. Minimum requirement is",
        example="cudaErrorInsufficientDriver: CUDA driver version is insufficient for CUDA runtime version",
    ),
    _driver_old(
        pattern=r"the provided PTX was compiled with an unsupported toolchain",
        example="CUDA error: the provided PTX was compiled with an unsupported toolchain.",
    ),
    line_rule(
        key="driver-mismatch",
        pattern=r"Driver/library version mismatch|driver/library version mismatch|Error 803: system has unsupported|"
        r"Error 804: forward compatibility was attempted",
        example="Failed to initialize NVML: Driver/library version mismatch",
        what="the driver's library in the job and the driver that the node has loaded are of different versions",
        advice="submit it with -x NODE and report the node; in a container remove its cuda-compat from LD_LIBRARY_PATH",
    ),
    line_rule(
        key="device-ordinal",
        pattern=r"(?:CUDA|HIP) error: invalid device ordinal",
        example="torch.AcceleratorError: CUDA error: invalid device ordinal",
        what="a rank chose a GPU that it cannot see: the node has more ranks than GPUs, or --gpus-per-task or "
        "CUDA_VISIBLE_DEVICES shows each rank fewer",
        advice="start one rank for each GPU, with --gpus-per-node, and choose the GPU by LOCAL_RANK",
    ),
    line_rule(
        key="gpu-shared",
        pattern=r"Duplicate GPU detected ?: rank (?P<one>\d+) and rank (?P<other>\d+) both on CUDA device",
        example="Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 50000",
        what="ranks {one} and {other} use the same GPU",
        advice="call torch.cuda.set_device(int(os.environ['LOCAL_RANK'])) before init_process_group",
    ),
    _broken(
        pattern=r"uncorrectable (?:ECC|NVLink) error|Invalid access of peer GPU memory over nvlink or a hardware error",
        example="torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered",
        what="the memory or a link of a GPU is broken",
    ),
    *XIDS,
    *_KERNEL,
    _broken(
        pattern=r"[Ff]allen off the bus|GPU is lost\. +Reboot the system",
        example="Unable to determine the device handle for GPU 0000:05:00.0: GPU is lost.  Reboot the system to "
        "recover this GPU",
        what="the driver lost a GPU: the node must be restarted",
    ),
    _broken(
        pattern=r"CUDA-capable device\S* (?:is|are|is/are) busy or unavailable|"
        r"CUDA error: (?:hardware (?:stack )?|initialization |unknown )error|Failed to initialize NVML: "
        r"(?!Driver/lib)\w+|"
        r"CUDA unknown error - this may be due to|CUDA_ERROR_(?:ECC_UNCORRECTABLE|UNKNOWN|NOT_INITIALIZED)|"
        r"NVIDIA-SMI has failed because",
        example="RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable",
        what="a GPU of the node cannot be used: it is broken, not set up, or held by another process",
        sure="likely",
    ),
    _not_built(
        pattern=r"no kernel image is available for execution on the device|HIP error: (?:invalid device function|"
        r"shared object initialization failed|device kernel image is invalid)|HSA_STATUS_ERROR_INVALID_ISA|"
        r"hipErrorNoBinaryForGpu|Unable to find code object for all current devices",
        example="RuntimeError: CUDA error: no kernel image is available for execution on the device",
    ),
    _not_built(
        pattern=r"rocBLAS error: Cannot read \S*TensileLibrary",
        example="rocBLAS error: Cannot read TensileLibrary.dat: Illegal seek for GPU arch : gfx1030",
    ),
    _not_built(
        pattern=r"FlashAttention only supports (?P<gpus>\w+) GPUs or newer",
        example="RuntimeError: FlashAttention only supports Ampere GPUs or newer.",
        what="the GPUs of the node are too old for FlashAttention, which needs {gpus} or newer",
        advice="use attn_implementation=\"sdpa\", or choose newer GPUs (-C, -p); `sinfo -o '%P %G %f'` lists them",
    ),
    line_rule(
        key="device-assert",
        pattern=r"\.cuh?:\d+:.* [Aa]ssertion `input_val >= zero && input_val <= one` failed",
        example="aten/src/ATen/native/cuda/Loss.cu:94: operator(): block: [117,0,0], thread: [28,0,0] Assertion "
        "`input_val >= zero && input_val <= one` failed.",
        what="the input of a binary cross entropy is not between 0 and 1 (an assertion in a CUDA kernel)",
        advice="use binary_cross_entropy_with_logits, or look for NaN in what the model returns",
    ),
    line_rule(
        key="device-assert",
        pattern=r"\.cuh?:\d+:.* [Aa]ssertion `(?P<assertion>.+?)[`'] failed",
        example="IndexKernel.cu:93: operator(): block: [0,0,0], thread: [1,0,0] Assertion `-sizes[i] <= index && index "
        "< sizes[i]` failed.",
        what="an assertion in a CUDA kernel failed: {assertion}",
        advice="export CUDA_LAUNCH_BLOCKING=1, or run a batch on the CPU, to see the line",
    ),
    line_rule(
        key="device-assert",
        pattern=r"device-side assert triggered",
        example="torch.AcceleratorError: CUDA error: device-side assert triggered",
        what="an assertion in a CUDA kernel failed; most often an index is out of range, for example a label",
        advice="export CUDA_LAUNCH_BLOCKING=1, or run a batch on the CPU, to see the line",
    ),
    _bad_access(
        pattern=r"(?P<said>unspecified launch failure)",
        example="RuntimeError: CUDA error: unspecified launch failure",
        what="a kernel on the GPU failed: {said}; most often it accessed memory that it may not access",
    ),
    _bad_access(
        pattern=r"an illegal memory access was encountered|(?:CUDA error: |HIP error: |runtime error \(\d+\) ?: |Cuda "
        r"failure (?:\d+ )?')"
        r"unspecified launch fa|CUDA_ERROR_(?:ILLEGAL_ADDRESS|LAUNCH_FAILED)|hipError(?:IllegalAddress|LaunchFailure)",
        example="torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
    ),
    _bad_access(
        pattern=r"(?:CUDA|HIP) error: (?P<why>misaligned address|an illegal instruction was encountered)|"
        r"Cuda failure (?:\d+ )?'an illegal instruction",
        example="RuntimeError: CUDA error: misaligned address",
        what="a kernel on the GPU used a wrong address or instruction: a fault of an extension, or of the GPU",
    ),
    _bad_access(
        pattern=r"Memory access fault by GPU \W*node-(?P<gpu>\d+)",
        what="a kernel on the GPU node-{gpu} accessed memory that it may not access",
        example="Memory access fault by GPU node-1 (Agent handle: 0x556e9b7e3360) on address 0x7f52c3f5f000. Reason: "
        "Page not present or supervisor privilege.",
        advice="export AMD_SERIALIZE_KERNEL=3 and submit it again: the traceback then names the line",
    ),
    _math_library(
        pattern=r"cuDNN version incompatibility: PyTorch (?:was )?compiled +against",
        example="RuntimeError: cuDNN version incompatibility: PyTorch was compiled  against (8, 9, 2) but found "
        "runtime version (8, 4, 0). PyTorch already comes bundled with cuDNN.",
        what="another cuDNN than torch's own was loaded",
        advice="remove cuDNN from LD_LIBRARY_PATH and do not load a cuDNN module: torch brings its own",
        sure="certain",
    ),
    _math_library(
        pattern=r"cuDNN error: (?P<status>CUDNN_STATUS_\w+)",
        example="RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED",
        what="cuDNN failed ({status}): the GPU's memory is nearly full, or another cuDNN was loaded",
        advice="use a smaller batch; remove cuDNN from LD_LIBRARY_PATH: torch brings its own",
    ),
    _math_library(
        pattern=r"MIOpen\S* [Ee]rror:? (?P<why>.+)|(?P<status>miopenStatus(?!Success)\w+|HIPBLAS_STATUS_(?!SUCC|"
        r"ALLOC)\w+|"
        r"rocblas_status_(?!succ)\w+)",
        example="RuntimeError: miopenStatusUnknownError",
        what="a library of ROCm failed: {why}{status}",
        advice="remove the cache ~/.config/miopen and ~/.cache/miopen; compare ROCm's version with torch.version.hip",
    ),
    _math_library(
        pattern=r"CUDA error: (?P<status>CUBLAS_STATUS_(?!ALLOC_FAILED)\w+)",
        example="RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasGemmEx( handle, opa, "
        "opb, m, n, k, &falpha, a, CUDA_R_16F, lda)`",
        what="cuBLAS failed ({status}): an earlier kernel had a wrong index or shape, or the GPU's memory is full",
        advice=f"{_BLOCKING}; use a smaller batch",
    ),
)

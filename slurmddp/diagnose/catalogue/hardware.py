"""Failures of memory and of GPUs. Data only."""

from functools import partial
from typing import Final

from slurmddp.diagnose.rule_types import Rule, line_rule

_symptom = partial(Rule, again=None, role="symptom", sure="likely")

_MEMORY_ADVICE = (
    "ask for more (--mem), or use less: fewer loader workers, smaller batches; sacct's MaxRSS shows the use"
)
_BAD_GPU_ADVICE = "submit it with -x NODE to avoid the node, and report the node to the cluster's administrators"

_out_of_memory = partial(
    Rule,
    key="out-of-memory",
    what="the job used more memory than it had asked for, and Slurm killed it",
    advice=_MEMORY_ADVICE,
    place="line",
)
_loader_shared_memory = partial(
    Rule,
    key="loader-shared-memory",
    what="the data loader's workers have filled /dev/shm",
    advice="use a larger /dev/shm, fewer workers, or torch.multiprocessing.set_sharing_strategy('file_system')",
)
_host_memory = partial(Rule, key="host-memory", advice=_MEMORY_ADVICE)
_no_gpu = partial(Rule, key="no-gpu")
_gpu_broken = partial(Rule, key="gpu-broken", advice=_BAD_GPU_ADVICE, again=True)

MEMORY: Final = (
    _out_of_memory(
        pattern=r"Detected (?P<count>\d+) oom[_-]kill event(?:\(?s\)?)? in (?P<step>\S+)",
        example="slurmstepd: error: Detected 1 oom_kill event in StepId=17.0. Some of the step tasks have been OOM "
        "Killed.",
        what="the job used more memory than it had asked for, and the kernel killed some of its processes",
    ),
    _out_of_memory(
        pattern=r"(?:slurmstepd-(?P<host>[\w.-]+): error: .*)?exceeded (?:job |step )?memory limit "
        r"\(\d+ > \d+\), being killed",
        example="slurmstepd-n2: error: StepId=17.0 exceeded memory limit (356294656 > 314572800), being killed",
    ),
    _out_of_memory(
        pattern=r"Exceeded job memory limit",
        example="slurmstepd: error: Exceeded job memory limit",
        role="symptom",
    ),
    _out_of_memory(
        pattern=r"tasks? (?P<tasks>[\d,-]+): Out Of Memory",
        example="srun: error: n2: task 1: Out Of Memory",
        what="the job used more memory than it had asked for, and the kernel killed task {tasks}",
    ),
    _loader_shared_memory(
        pattern=r"DataLoader worker \(pid(?:\(s\))? [^)]*\) is killed by signal: Bus error",
        example="RuntimeError: DataLoader worker (pid 4711) is killed by signal: Bus error. It is possible that "
        "dataloader's workers are out of shared memory. Please try to raise your shared memory limit.",
    ),
    _loader_shared_memory(
        pattern=r"^(?!.*Too many open files).*unable to (?:allocate|open|mmap|write)\b.*(?:shared memory|</torch_)",
        example="RuntimeError: unable to allocate shared memory(shm) for file </torch_17_1_0>: No space left on "
        "device (28)",
        what="the node's shared memory is full or too small for the data loader's workers",
    ),
    _loader_shared_memory(
        pattern=r"Unexpected bus error encountered in worker\. This might be caused by insufficient shared memory",
        example="ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory "
        "(shm).",
        place="line",
    ),
    Rule(
        key="loader-killed",
        pattern=r"DataLoader worker \(pid(?:\(s\))? [^)]*\) "
        r"(?:is killed by signal: (?P<signal>[\w ]+)|exited unexpectedly)",
        example="RuntimeError: DataLoader worker (pid 4711) is killed by signal: Killed.",
        what="a worker of the data loader was killed; the kernel does this when the node runs out of memory",
        advice="use fewer workers or more --mem; num_workers=0 shows whether the data loader is the reason",
        again=None,
        sure="likely",
        general=True,
    ),
    Rule(
        key="gpu-memory",
        pattern=r"(?:CUDA|HIP|XPU) out of memory|CUDA error: out of memory|CUBLAS_STATUS_ALLOC_FAILED",
        example="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
        "79.15 GiB of which 1.20 GiB is free.",
        what="the memory of the GPU is full",
        advice="use a smaller batch with accumulation, lower precision or activation checkpointing; if only GPU 0 "
        "is full, let each rank choose its own GPU (torch.cuda.set_device)",
    ),
    _host_memory(
        pattern=r"^MemoryError\b",
        example="MemoryError",
        what="the system had no more memory for Python",
    ),
    _host_memory(
        pattern=r"can't allocate memory: you tried to allocate (?P<size>\d+) bytes",
        example="RuntimeError: [enforce fail at alloc_cpu.cpp:121] err == 0. DefaultCPUAllocator: can't allocate "
        "memory: you tried to allocate 8589934592 bytes. Error code 12 (Cannot allocate memory)",
        what="the system had no more memory for torch, which asked for {size} bytes",
    ),
    _host_memory(
        pattern=r"\[Errno 12\] Cannot allocate memory",
        example="OSError: [Errno 12] Cannot allocate memory",
        what="the system had no more memory for the program",
    ),
)

GPUS: Final = (
    _no_gpu(
        pattern=r"Found no NVIDIA driver on your system",
        example="RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and "
        "installed a driver",
        what="the program needs a GPU, and the node has no NVIDIA driver",
        advice="ask for GPUs (--gpus-per-node) in a partition that has them; `slurmddp cluster` lists the partitions",
    ),
    _no_gpu(
        pattern=r"[Nn]o CUDA GPUs are available",
        example="RuntimeError: No CUDA GPUs are available",
        what="the program needs a GPU, and the job has none",
        advice="ask for them: --gpus-per-node",
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
    Rule(
        key="torch-without-cuda",
        pattern=r"Torch not compiled with CUDA enabled|Distributed package doesn't have NCCL built in",
        example="AssertionError: Torch not compiled with CUDA enabled",
        what="this torch was built without CUDA",
        advice="install torch with CUDA into the job's environment, or train on the CPU with gloo",
    ),
    Rule(
        key="driver-old",
        pattern=r"NVIDIA driver on your system is too old \(found version (?P<version>\d+)\)",
        example="RuntimeError: The NVIDIA driver on your system is too old (found version 11040). Please update your "
        "GPU driver",
        what="the driver of the node is too old for this torch",
        advice="install a torch that was built for an older CUDA, or choose nodes with a newer driver",
    ),
    line_rule(
        key="device-ordinal",
        pattern=r"invalid device ordinal",
        example="torch.AcceleratorError: CUDA error: invalid device ordinal",
        what="a rank chose a GPU that it cannot see: with --gpus-per-task each rank sees one GPU only",
        advice="use --gpus-per-node, and choose the GPU by LOCAL_RANK",
    ),
    line_rule(
        key="gpu-shared",
        pattern=r"Duplicate GPU detected ?: rank (?P<one>\d+) and rank (?P<other>\d+) both on CUDA device",
        example="Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 50000",
        what="ranks {one} and {other} use the same GPU",
        advice="call torch.cuda.set_device(int(os.environ['LOCAL_RANK'])) before init_process_group",
    ),
    _gpu_broken(
        pattern=r"uncorrectable (?:ECC|NVLink) error",
        example="torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered",
        what="the memory or a link of a GPU is broken",
        place="line",
    ),
    _gpu_broken(
        pattern=r"\bXid \((?:PCI:)?[0-9a-fA-F]{4}:|[Ff]allen off the bus",
        example="NVRM: Xid (PCI:0000:3b:00): 79, pid=4711, GPU has fallen off the bus.",
        what="the driver lost a GPU",
        place="line",
    ),
    _gpu_broken(
        pattern=r"Error 802: system not yet initialized|CUDA-capable device\S* (?:is|are|is/are) busy or unavailable|"
        r"CUDA error: hardware (?:stack )?error",
        example="RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable",
        what="a GPU of the node cannot be used: it is broken, not set up, or held by another process",
        sure="likely",
    ),
    Rule(
        key="kernels-missing",
        pattern=r"no kernel image is available for execution on the device",
        example="RuntimeError: CUDA error: no kernel image is available for execution on the device",
        what="torch, or an extension of it, was not built for the GPUs of the node",
        advice="install one that was, or choose other nodes (-C, -p); `slurmddp cluster` lists them",
    ),
    Rule(
        key="device-assert",
        pattern=r"device-side assert triggered",
        example="torch.AcceleratorError: CUDA error: device-side assert triggered",
        what="an assertion in a CUDA kernel failed; most often an index is out of range, for example a label",
        advice="submit it with --env CUDA_LAUNCH_BLOCKING=1, or run a batch on the CPU, to see the line",
    ),
    Rule(
        key="illegal-address",
        pattern=r"an illegal memory access was encountered|CUDA error: unspecified launch failure",
        example="torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
        what="a CUDA kernel accessed memory that it may not access",
        advice="submit it with --env CUDA_LAUNCH_BLOCKING=1: the traceback then names the line",
        again=None,
    ),
    _symptom(
        key="network-failed",
        pattern=r"NET/IB\w* ?: ?Got completion from peer (?P<peer>\S+) with (?:status|error)[= ](?P<status>\d+)",
        example="n2:984:1357 [4] ib_plugin.c:1615 NCCL WARN NET/IB : Got completion from peer 10.0.0.7<44206> with "
        "status=12 opcode=129 len=65536 vendor err 129 (Recv)",
        what="InfiniBand lost the connection to {peer} (status {status}): a link, a switch, or the peer is down",
        advice="run `ibstat` on the nodes, and avoid one whose link is not Active: -x NODE",
        place="line",
    ),
    _symptom(
        key="nccl-failed",
        pattern=r"NCCL error in: |unhandled (?:system|cuda) error|nccl(?:System|Internal|UnhandledCuda)Error",
        example="torch.distributed.DistBackendError: NCCL error in: ../ProcessGroupNCCL.cpp:331, unhandled system "
        "error, NCCL version 2.27.3",
        what="NCCL failed: the reason is the network or a GPU",
        advice="submit it with --env NCCL_DEBUG=WARN: NCCL then prints the reason",
        place="line",
    ),
)

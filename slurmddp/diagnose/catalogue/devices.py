"""GPUs and their drivers. Data only."""

from typing import Final

from slurmddp.diagnose.model import Rule

_BAD_GPU = "slurmddp submit with -x NODE keeps off the node; tell those who run the cluster"

RULES: Final = (
    Rule(
        key="no-gpu",
        pattern=r"Found no NVIDIA driver on your system",
        example="RuntimeError: Found no NVIDIA driver on your system. Please check that you have an NVIDIA GPU and "
        "installed a driver",
        what="the program wants a GPU, and the node has no NVIDIA driver",
        advice="ask for GPUs (--gpus-per-node) in a partition that has them: slurmddp cluster",
    ),
    Rule(
        key="no-gpu",
        pattern=r"[Nn]o CUDA GPUs are available",
        example="RuntimeError: No CUDA GPUs are available",
        what="the program wants a GPU, and the job was given none",
        advice="ask for them: --gpus-per-node",
    ),
    Rule(
        key="no-gpu",
        pattern=r"ProcessGroupNCCL is only supported with GPUs, no GPUs found",
        example="ValueError: ProcessGroupNCCL is only supported with GPUs, no GPUs found!",
        what="the program asked for NCCL, and there is no GPU",
        advice='ask for GPUs (--gpus-per-node), or use the backend "gloo"',
    ),
    Rule(
        key="no-gpu",
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
        advice="install a torch that was built for an older CUDA, or take nodes with a newer driver",
    ),
    Rule(
        key="device-ordinal",
        pattern=r"invalid device ordinal",
        example="torch.AcceleratorError: CUDA error: invalid device ordinal",
        what="a rank chose a GPU that it does not see: --gpus-per-task shows each rank one alone",
        advice="ask by --gpus-per-node, and use LOCAL_RANK",
        place="line",
    ),
    Rule(
        key="gpu-shared",
        pattern=r"Duplicate GPU detected ?: rank (?P<one>\d+) and rank (?P<other>\d+) both on CUDA device",
        example="Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 50000",
        what="ranks {one} and {other} use the same GPU",
        advice="torch.cuda.set_device(int(os.environ['LOCAL_RANK'])) before the group is made",
        place="line",
    ),
    Rule(
        key="gpu-broken",
        pattern=r"uncorrectable (?:ECC|NVLink) error",
        example="torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered",
        what="the memory, or a link, of a GPU is broken",
        advice=_BAD_GPU,
        again=True,
        place="line",
    ),
    Rule(
        key="gpu-broken",
        pattern=r"\bXid \((?:PCI:)?[0-9a-fA-F]{4}:|[Ff]allen off the bus",
        example="NVRM: Xid (PCI:0000:3b:00): 79, pid=4711, GPU has fallen off the bus.",
        what="the driver lost a GPU",
        advice=_BAD_GPU,
        again=True,
        place="line",
    ),
    Rule(
        key="gpu-broken",
        pattern=r"Error 802: system not yet initialized|CUDA-capable device\S* (?:is|are|is/are) busy or unavailable|"
        r"CUDA error: hardware (?:stack )?error",
        example="RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable",
        what="a GPU of the node cannot be used: it is broken, not set up, or held by another process",
        advice=_BAD_GPU,
        again=True,
        sure="likely",
    ),
    Rule(
        key="kernels-missing",
        pattern=r"no kernel image is available for execution on the device",
        example="RuntimeError: CUDA error: no kernel image is available for execution on the device",
        what="this torch, or an extension of it, was not built for the GPUs of the node",
        advice="install one that was, or take other nodes (-C, -p): slurmddp cluster",
    ),
    Rule(
        key="device-assert",
        pattern=r"device-side assert triggered",
        example="torch.AcceleratorError: CUDA error: device-side assert triggered",
        what="a check inside a GPU's program failed; most often an index, as a label of a class that there is not",
        advice="CUDA_LAUNCH_BLOCKING=1 (--env CUDA_LAUNCH_BLOCKING=1) names the line, or one batch on the CPU",
    ),
    Rule(
        key="illegal-address",
        pattern=r"an illegal memory access was encountered|CUDA error: unspecified launch failure",
        example="torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
        what="a GPU's program reached for memory that is not its own",
        advice="CUDA_LAUNCH_BLOCKING=1 (--env CUDA_LAUNCH_BLOCKING=1) names the line",
        again=None,
    ),
    Rule(
        key="network-failed",
        pattern=r"NET/IB\w* ?: ?Got completion from peer (?P<peer>\S+) with (?:status|error)[= ](?P<status>\d+)",
        example="n2:984:1357 [4] ib_plugin.c:1615 NCCL WARN NET/IB : Got completion from peer 10.0.0.7<44206> with "
        "status=12 opcode=129 len=65536 vendor err 129 (Recv)",
        what="InfiniBand lost the way to {peer} (status {status}): a link, a switch, or the peer is down",
        advice="`ibstat` on the nodes; -x NODE keeps off the one whose link is not Active",
        again=None,
        place="line",
        role="symptom",
        sure="likely",
    ),
    Rule(
        key="nccl-failed",
        pattern=r"NCCL error in: |unhandled (?:system|cuda) error|nccl(?:System|Internal|UnhandledCuda)Error",
        example="torch.distributed.DistBackendError: NCCL error in: ../ProcessGroupNCCL.cpp:331, unhandled system "
        "error, NCCL version 2.27.3",
        what="NCCL failed: the network, or a GPU",
        advice="--env NCCL_DEBUG=WARN and submit again: NCCL then says what it was",
        again=None,
        place="line",
        role="symptom",
        sure="likely",
    ),
)

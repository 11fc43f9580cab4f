"""Failures of the network between GPUs: InfiniBand, RoCE and NCCL's other transports. Data only."""

from functools import partial
from typing import Final

from slurmddp.diagnose.rule_types import Rule, line_rule

_symptom = partial(Rule, again=None, role="symptom", sure="likely", place="line")
_unknown_again = partial(line_rule, again=None)
_memlock = partial(
    line_rule,
    key="locked-memory",
    what="the process may not lock the memory that InfiniBand needs",
    advice="`srun bash -c 'ulimit -l'` must print unlimited; if not, ask the administrators to set "
    "LimitMEMLOCK=infinity for slurmd",
)
_port_failed = partial(
    line_rule,
    key="network-port",
    advice="run `ibstat` on the node; submit it with -x NODE, and report the node to the cluster's administrators",
    again=True,
)
_nccl_versions = partial(
    line_rule,
    key="nccl-versions",
    advice="install the same torch, NCCL and network plugin on all nodes, or start all ranks in one container image",
)
_shared_memory = partial(
    line_rule,
    key="nccl-shared-memory",
    advice="use a larger /dev/shm (a container: --shm-size, or --ipc=host), and remove /dev/shm/nccl-* of dead jobs",
)

RULES: Final = (
    _memlock(
        pattern=r"NCCL WARN Call to ibv_(?:reg_(?:dmabuf_)?mr\w*|create_(?:cq|qp)\w*) failed"
        r"(?: with error (?:Cannot allocate memory|Unknown error -12).*)?$",
        example="n1:4711:4801 [0] misc/ibvwrap.cc:278 NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot "
        "allocate memory",
    ),
    _unknown_again(
        key="network-unreachable",
        pattern=r"NCCL WARN Call to ibv_modify_qp failed with (?:error |\d+ )?"
        r"(?P<why>(?:Connection timed out|Network is unreachable|No such device|Invalid argument)[^,]*)",
        example="n1:4711:4801 [5] ibvwrap.c:262 NCCL WARN Call to ibv_modify_qp failed with 110 Connection timed out, "
        "on dev mlx_x:1, curr state INIT, next state RTR, local GID index 3",
        what="the InfiniBand or RoCE ports of two nodes cannot reach each other: {why}",
        advice="choose ports of one network by NCCL_IB_HCA; with RoCE try NCCL_IB_GID_INDEX=3; with separate rails "
        "NCCL_CROSS_NIC=0; `ib_write_bw` tests two nodes",
    ),
    _unknown_again(
        key="network-call",
        pattern=r"NCCL WARN Call to (?P<call>ibv_(?!query)\w+) failed(?: with error)?(?P<why>.*)",
        example="NCCL WARN Call to ibv_create_ah failed with error No such device",
        what="a call of the InfiniBand library failed: {call}{why}",
        advice="run `ibstat` and `ibv_devinfo` on the node; NCCL_IB_DISABLE=1 shows whether it works over TCP",
    ),
    _port_failed(
        pattern=r"NET/IB : (?:(?P<port>[\w.-]+:\d+) )?(?:Got async event : |async fatal event: )"
        r"(?P<why>port error|local catastrophic error|device fatal error)",
        example="p2p_plugin.c:141 NCCL WARN NET/IB : Got async event : port error",
        what="an InfiniBand port went down during the run: {port} {why}",
    ),
    _port_failed(
        pattern=r"NET/IB ?: ?(?P<port>[\w.-]+:\d+) async fatal event on (?:QP|CQ|SRQ)",
        example="NET/IB: ibp198s0f0:1 async fatal event on QP: local access violation work queue error",
        what="the InfiniBand adapter stopped a queue with a fatal error: {port}",
        sure="likely",
    ),
    _symptom(
        key="network-failed",
        pattern=r"NET/IB\w* ?: ?Got completion from peer (?P<peer>\S+) with (?:status|error)[= ](?P<status>\d+)",
        example="n2:984:1357 [4] ib_plugin.c:1615 NCCL WARN NET/IB : Got completion from peer 10.0.0.7<44206> with "
        "status=12 opcode=129 len=65536 vendor err 129 (Recv)",
        what="InfiniBand lost the connection to {peer} (status {status}): a link, a switch, or the peer is down",
        advice="run `ibstat` on the nodes, and avoid one whose link is not Active: -x NODE",
    ),
    _symptom(
        key="network-failed",
        pattern=r"Transport retry count exceeded on (?P<device>\S+)",
        example="[cn0001:3639441:0:3639441] ib_mlx5_log.c:171  Transport retry count exceeded on mlx5_0:1/IB (synd "
        "0x15 vend 0x81 hw_syn d 0/0)",
        what="UCX lost its peer over {device}: a link, a switch, or the peer is down",
        advice="run `ibstat` on the nodes, and avoid one whose link is not Active: -x NODE",
    ),
    line_rule(
        key="no-interface",
        pattern=r"Bootstrap : no socket interface found|NET/Socket : no interface found|"
        r"Unable to find (?:address|interface) for: ?(?P<name>\S*)",
        example="n1:17:17 [0] NCCL WARN Bootstrap : no socket interface found",
        what="this node does not have the requested network interface",
        advice="`ip -br addr` on the node prints the names; correct NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME",
    ),
    line_rule(
        key="network-plugin",
        pattern=r"NCCL WARN Error: network (?P<name>.+?) not found",
        example="nid006365:179857:179897 [1] net.cc:626 NCCL WARN Error: network AWS Libfabric not found.",
        what="NCCL_NET asks for the network {name}, and its plugin is not installed",
        advice="put the folder of the plugin's libnccl-net.so into LD_LIBRARY_PATH, or unset NCCL_NET",
    ),
    _nccl_versions(
        pattern=r"NCCL WARN Message truncated : received (?P<got>\d+) bytes instead of",
        example="ada6000-02:165062:166441 [0] bootstrap.cc:77 NCCL WARN Message truncated : received 172 bytes instead "
        "of 64",
        what="ranks sent messages of different sizes: they use different versions of NCCL, or different arguments",
        sure="likely",
    ),
    line_rule(
        key="world-size",
        pattern=r"rank (?P<number>\d+) of (?P<size>\d+)(?: ranks)? has already checked in",
        example="bootstrapRoot: rank 0 of 8 has already checked in",
        what="two processes are rank {number} of {size}",
        advice="start all ranks with one srun, do not export RANK or SLURM_PROCID, and use another port for each job",
    ),
    _shared_memory(
        pattern=r"NCCL WARN Error while (?:creating|attaching to) shared memory segment (?P<file>\S+)",
        example="3d3e22c3066f:168:168 [0] misc/shmutils.cc:113 NCCL WARN Error while creating shared memory segment "
        "/dev/shm/nccl-UbzKZ9 (size 9637888)",
        what="the node's shared memory is full or too small for NCCL: {file}",
    ),
    _unknown_again(
        key="nvlink-multicast",
        pattern=r"Failed to bind NVLink SHARP \(NVLS\) Multicast memory|"
        r"transport/nvls\.cc:\d+ .*NCCL WARN Cuda failure (?P<code>\d+)",
        example="Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA error 2 'out of memory'.",
        what="NCCL could not use the NVSwitch's multicast: the node's Fabric Manager or container does not allow it",
        advice="export NCCL_NVLS_ENABLE=0, and report the node to the cluster's administrators",
    ),
    _unknown_again(
        key="nvlink-domain",
        pattern=r"MNNVL \(cliqueSize \d+\) is available but not working on this system",
        example="NCCL WARN MNNVL (cliqueSize 72) is available but not working on this system. Check the IMEX channel "
        "configuration (/dev/nvidia-caps-imex-channels).",
        what="the nodes share an NVLink domain, and its IMEX channel is not set up for the job",
        advice="ask the administrators to set up IMEX; NCCL_MNNVL_ENABLE=0 trains without it",
    ),
    line_rule(
        key="peer-access",
        pattern=r"peer access is not supported between these two devices",
        example="RuntimeError: CUDA error: peer access is not supported between these two devices",
        what="two GPUs of the node cannot access each other's memory directly",
        advice="export NCCL_P2P_DISABLE=1; for tensors in CUDA shared memory use one GPU a process",
    ),
    _symptom(
        key="nccl-failed",
        pattern=r"NCCL error in: |unhandled (?:system|cuda) error|"
        r"nccl(?:System|Internal|UnhandledCuda)Error",
        example="torch.distributed.DistBackendError: NCCL error in: ../ProcessGroupNCCL.cpp:331, unhandled system "
        "error, NCCL version 2.27.3",
        what="NCCL failed: the reason is the network or a GPU",
        advice="export NCCL_DEBUG=WARN and submit it again: NCCL then prints the reason",
    ),
)

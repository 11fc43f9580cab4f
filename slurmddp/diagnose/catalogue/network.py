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

_LINK: Final = "run `ibstat` on the nodes, and avoid one whose link is not Active: -x NODE"
_FLUSHED: Final = 5
"""This status always follows from another, on this node or on the peer."""
_REGISTER: Final = (
    "export NCCL_NET_GDR_LEVEL=LOC to send without GPUDirect RDMA; check `ulimit -l`, nvidia-peermem, and ACS and IOMMU"
)

COMPLETIONS: Final = tuple(
    _symptom(
        key="network-failed",
        pattern=r"NET/IB\w* ?: ?Got completion from peer (?P<peer>\S+) with (?:status|error)[= ](?:\w+\()?"
        rf"(?P<status>{status})\b",
        example=f"n2:984:1357 [4] NCCL WARN NET/IB : Got completion from peer 10.0.0.7<44206> with status={status} "
        "opcode=129 len=65536 vendor err 129 (Recv)",
        what=f"{what} (completion status {{status}}, {name})",
        advice=advice,
        general=status == _FLUSHED,
    )
    for status, name, what, advice in (
        (
            4,
            "local protection error",
            "in a transfer with {peer}, InfiniBand may not access memory of this node: it is not registered for RDMA",
            _REGISTER,
        ),
        (
            _FLUSHED,
            "work request flushed",
            "an InfiniBand queue to {peer} had failed before",
            "read the first `Got completion` of each node: it says why",
        ),
        (
            9,
            "remote invalid request",
            "{peer} refused a message over InfiniBand, as when it expects another size",
            "start all ranks with the same NCCL, plugin and arguments",
        ),
        (10, "remote access error", "InfiniBand may not access the memory of {peer}", _REGISTER),
        (
            11,
            "remote operation error",
            "the adapter of {peer} could not complete a transfer over InfiniBand",
            "read that node's output and `dmesg -T`; avoid it: -x NODE",
        ),
        (
            12,
            "retry exceeded",
            "InfiniBand lost the connection to {peer}: a link, a switch, or the peer is down",
            _LINK,
        ),
        (
            13,
            "receiver not ready",
            "{peer} was not ready to receive over InfiniBand: it hangs, or has died",
            "read the output of that peer: did it die first?",
        ),
    )
)
"""What InfiniBand says of a transfer by the numbers of ibverbs."""

RULES: Final = (
    _memlock(
        pattern=r"(?:NCCL WARN |^)Call to ibv_(?:reg_(?:dmabuf_)?mr\w*|create_(?:cq|qp)\w*) failed"
        r"(?: with error (?:Cannot allocate memory|Unknown error -12).*)?$",
        example="n1:4711:4801 [0] misc/ibvwrap.cc:278 NCCL WARN Call to ibv_reg_mr_iova2 failed with error Cannot "
        "allocate memory",
    ),
    _unknown_again(
        key="network-unreachable",
        pattern=r"(?:NCCL WARN |^)Call to ibv_modify_qp failed with (?:error |\d+ )?"
        r"(?P<why>(?:Connection timed out|Network is unreachable|No such device|Invalid argument)[^,]*)",
        example="n1:4711:4801 [5] ibvwrap.c:262 NCCL WARN Call to ibv_modify_qp failed with 110 Connection timed out, "
        "on dev mlx_x:1, curr state INIT, next state RTR, local GID index 3",
        what="the InfiniBand or RoCE ports of two nodes cannot reach each other: {why}",
        advice="choose ports of one network by NCCL_IB_HCA; with RoCE try NCCL_IB_GID_INDEX=3; with separate rails "
        "NCCL_CROSS_NIC=0; `ib_write_bw` tests two nodes",
    ),
    _unknown_again(
        key="network-call",
        pattern=r"(?:NCCL WARN |^)Call to (?P<call>ibv_(?!query)\w+) failed(?: with error)?(?P<why>.*)",
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
    *COMPLETIONS,
    _symptom(
        key="network-failed",
        pattern=r"NET/IB\w* ?: ?Got completion from peer (?P<peer>\S+) with (?:status|error)[= ](?:\w+\()?"
        r"(?P<status>[1-46-9]|\d\d+)\b",
        example="n2:984:1357 [4] ib_plugin.c:1615 NCCL WARN NET/IB : Got completion from peer 10.0.0.7<44206> with "
        "status=2 opcode=129 len=65536 vendor err 129 (Recv)",
        what="a transfer over InfiniBand to or from {peer} failed (completion status {status})",
        advice=_LINK,
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
        key="name-unresolved",
        pattern=r"rp != nullptr\. Unable to find address for: ?(?P<name>\S+)|"
        r"Unable to resolve hostname to a \(local\) address(?!\. Using)",
        example="RuntimeError: [enforce fail at gloo/transport/tcp/device.cc:127] rp != nullptr. Unable to find "
        "address for: dgx-1.ai",
        what="gloo finds no address of this node for the node's own host name {name}",
        advice="put the name into DNS or /etc/hosts, or export GLOO_SOCKET_IFNAME; `ip -br addr` prints the interfaces",
    ),
    line_rule(
        key="no-interface",
        pattern=r"Bootstrap : no socket interface found|NET/Socket : no interface found|"
        r"Unable to find (?:address|interface) for:(?P<name> ?\S*)",
        example="n1:17:17 [0] NCCL WARN Bootstrap : no socket interface found",
        what="the node lacks the network interface that was asked for, or it has no address{name}",
        advice="`ip -br addr` on the node prints the interfaces; correct NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME",
    ),
    line_rule(
        key="network-plugin",
        pattern=r"NCCL WARN Error: network (?P<name>.+?) not found",
        example="nid006365:179857:179897 [1] net.cc:626 NCCL WARN Error: network AWS Libfabric not found.",
        what="NCCL_NET asks for the network {name}, and its plugin is not installed",
        advice="put the folder of the plugin's libnccl-net.so into LD_LIBRARY_PATH, or unset NCCL_NET",
    ),
    _symptom(
        key="network-plugin",
        pattern=r"NCCL WARN NET/(?P<name>OFI|Plugin)\b[ :]*(?P<why>.*(?:[Cc]ouldn't|[Ff]ailed|[Uu]nable|ERROR).*)",
        example="n4:72593:73427 [7] create_nccl_ofi_component:459 NCCL WARN NET/OFI Couldn't open AV. RC: -22, ERROR: "
        "Invalid argument",
        what="NCCL's network plugin {name} failed: {why}",
        advice="use a plugin and a libfabric that belong together; NCCL_NET=Socket shows whether it goes without them",
        again=False,
        place="line",
    ),
    _nccl_versions(
        pattern=r"(?:NCCL WARN |^)Message truncated : received (?P<got>\d+) bytes instead of",
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
        pattern=r"(?:NCCL WARN |^)Error while (?:creating|attaching to) shared memory segment (?P<file>\S+)",
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
        key="network-failed",
        pattern=r"(?:NCCL WARN |^socket\w+: )(?!.*(?:No route to host|Network is unreach)).*?[Cc]onnect to "
        r"(?P<peer>\S+) (?:failed|"
        r"returned) ?:? ?(?P<why>.+)|"
        r"NCCL WARN (?:Net : )?(?P<make>Socket creation failed.*)|NCCL WARN (?:[\w/]+ ?: )?Call to (?P<call>connect|"
        r"accept|bind|listen|recv|send|poll|getsockopt|socket)\b"
        r"(?P<how>.+)",
        example="n1:39964:40075 [0] misc/socket.cc:483 NCCL WARN socketStartConnect: Connect to 10.0.0.2<45763> "
        "failed : "
        "Software caused connection abort",
        what="NCCL could not connect to, or lost, its peer {peer}: {why}{call}{how}{make}",
        advice="read the output of that peer: did it die first? If not, a firewall or a wrong network is between them: "
        "NCCL_SOCKET_IFNAME chooses one",
    ),
    _unknown_again(
        key="nccl-gpu-call",
        pattern=r"(?:(?P<file>[\w.-]+\.(?:cc|h|cpp|c):\d+) )?NCCL WARN (?:Cuda|CUDA|HIP|Hip)(?: driver)? failure "
        r"(?:\d+ )?'(?!out of memory|driver shutting down)(?P<why>[^']+)|NCCL WARN (?P<call>nvml\w+)\(\) failed: "
        r"(?P<how>.+)",
        example="n1:19402:19419 [0] rccl/src/transport/p2p.cc:237 NCCL WARN Cuda failure 'invalid argument'",
        what="NCCL's call to the GPU or its driver failed: {why}{how} ({file}{call})",
        advice="in p2p.cc or shm.cc: NCCL_P2P_DISABLE=1 or NCCL_SHM_DISABLE=1 shows whether the GPUs can share memory; "
        "else run `nvidia-smi` on the node, and export NCCL_DEBUG=INFO",
        sure="likely",
    ),
    _symptom(
        key="peer-refused",
        pattern=r"connect returned (?P<why>[A-Z][\w ]+?), exceeded error retry count",
        example="socketPollConnect: connect returned Connection refused, exceeded error retry count (35)",
        what="NCCL could not connect to a peer ({why}): its process has ended, a firewall is between the nodes, or "
        "NCCL took a wrong network interface",
        advice="read the output of the other ranks: one that failed before says why; else set NCCL_SOCKET_IFNAME, and "
        "export NCCL_DEBUG=INFO",
        place="line",
    ),
    _symptom(
        key="peer-refused",
        pattern=r"gloo/.*SO_ERROR: (?P<why>Connection refused|No route to host|Network is unreachable)",
        example="what():  [enforce fail at gloo/transport/tcp/pair.cc:498] optval == 0. 111 vs 0. SO_ERROR: Connection "
        "refused",
        what="gloo could not connect to a peer ({why}): its process has ended, a firewall is between the nodes, or "
        "gloo took a wrong network interface",
        advice="read the output of the other ranks: one that failed before says why; else set GLOO_SOCKET_IFNAME",
    ),
    _symptom(
        key="nccl-failed",
        pattern=r"unhandled system error|ncclSystemError",
        example="torch.distributed.DistBackendError: NCCL error in: ../ProcessGroupNCCL.cpp:331, unhandled system "
        "error, NCCL version 2.27.3",
        what="a system call failed in NCCL (socket, shared memory, malloc): often the network, or a peer that "
        "has ended",
        advice="export NCCL_DEBUG=WARN and submit it again: NCCL then prints which call",
    ),
    _symptom(
        key="nccl-failed",
        pattern=r"(?:NCCL|nccl).*invalid (?:argument|usage)\b|ncclInvalid(?:Argument|Usage)",
        example="RuntimeError: NCCL error in: /pytorch/torch/lib/c10d/../c10d/NCCLUtils.hpp:82, invalid argument, NCCL "
        "version 2.4.8",
        what="NCCL refused what it was given: ranks outside the world size, a GPU for two ranks, or a tensor that is "
        "not on this rank's GPU",
        advice="compare RANK, WORLD_SIZE and the GPU of all ranks; export NCCL_DEBUG=WARN: NCCL then prints the reason",
    ),
    _symptom(
        key="nccl-failed",
        pattern=r"NCCL error in: |unhandled (?:cuda|hip) error|NCCL [Ee]rror \d:|"
        r"nccl(?:Internal|UnhandledCuda)Error",
        example="RuntimeError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:45, unhandled cuda "
        "error, NCCL version 21.0.3",
        what="NCCL failed: the reason is the network or a GPU",
        advice="export NCCL_DEBUG=WARN and submit it again: NCCL then prints the reason",
    ),
)

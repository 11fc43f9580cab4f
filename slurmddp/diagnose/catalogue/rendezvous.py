"""Failures of the rendezvous: addresses, ports, ranks. Data only."""

from functools import partial
from typing import Final

from slurmddp.diagnose.rule_types import Rule, line_rule

_symptom = partial(Rule, again=None, role="symptom", sure="likely")

_port_taken = partial(
    Rule,
    key="port-taken",
    what="port {port} of the head node is in use: by another program, or by a second process that is rank 0 too",
    advice="choose another MASTER_PORT for each job, for example $((20000 + SLURM_JOB_ID % 20000)), and submit it "
    "again; if it fails again, look for two processes with RANK=0",
    again=True,
)
_rank_missing = partial(
    _symptom,
    key="rank-missing",
    advice="read the output of the missing ranks; a rank that never started has none",
)
_head_unreachable = partial(
    _symptom,
    key="head-unreachable",
    advice="check that MASTER_ADDR is the first host of the job, and read the output of rank 0: did it start?",
)
_mesh_failed = partial(_symptom, key="mesh-failed")

RULES: Final = (
    Rule(
        key="meeting-file",
        pattern=r"^RuntimeError: open\((?P<path>/[^)]*)\): (?P<why>.+)",
        example="RuntimeError: open(/somefile): Permission denied",
        what="the ranks cannot meet by the file {path}: {why}",
        advice="the init_method is file:///PATH with three slashes, in a folder that all ranks see and may write to",
    ),
    _port_taken(
        pattern=r"server socket has failed to (?:listen|bind).*port: (?P<port>\d+).*EADDRINUSE",
        example="torch.distributed.DistNetworkError: The server socket has failed to listen on any local network "
        "address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
        place="line",
    ),
    _port_taken(
        pattern=r"port (?P<port>\d+) on (?P<host>\S+) is taken by (?P<by>.+)",
        example="Error: port 29501 on n1 is taken by a program that is not rank 0 of this job",
        what="port {port} on {host} is taken by {by}",
        advice="submit it again: it uses another port; --port-range limits the choice",
        place="line",
    ),
    _port_taken(
        pattern=r"server socket has failed to (?:listen|bind)\b.*?:(?P<port>\d+) \(errno: 98",
        example="[W socket.cpp:426] [c10d] The server socket has failed to listen on [::]:38429 (errno: 98 - Address "
        "already in use).",
        place="line",
    ),
    _port_taken(
        pattern=r"server socket has failed to listen on any local network address\. useIpv6\b.*EADDRINUSE",
        example="RuntimeError: The server socket has failed to listen on any local network address. useIpv6: 0, "
        "code: -98, name: EADDRINUSE, message: address already in use",
        what="the port of the head node is in use: by another program, or by a second process that is rank 0 too",
        place="line",
    ),
    _port_taken(
        pattern=r"(?:OSError: \[Errno 98\]|RuntimeError:) (?:error while attempting to bind.*)?[Aa]ddress already "
        r"in use",
        example="OSError: [Errno 98] Address already in use",
        what="a port that the program needs is in use on its node",
        advice="choose another port for the program, or let the system choose one (port 0)",
    ),
    _rank_missing(
        pattern=r"(?P<who>ranks? (?P<rank>\d+)[\d, ]*(?:\((?P<host>[\w.-]+)\))?.*?) did not arrive "
        r"within (?P<limit>[\d.]+) s",
        example="Error: ranks 2, 3 (n2), rank 5 (n3) did not arrive within 60 s",
        what="{who} did not reach the rendezvous within {limit} s",
        advice="read that rank's output; `slurmddp doctor` checks its node",
        place="line",
    ),
    _rank_missing(
        pattern=r"Timed out after (?P<limit>\d+) seconds waiting for clients\. "
        r"(?P<joined>\d+)/(?P<size>\d+) clients joined",
        example="torch.distributed.DistStoreError: Timed out after 61 seconds waiting for clients. 1/2 clients joined.",
        what="only {joined} of {size} ranks reached the rendezvous within {limit} s",
    ),
    _rank_missing(
        pattern=r"Timed out initializing process group in store based barrier .*"
        r"\(world_size=(?P<size>\d+), worker_count=(?P<joined>\d+), timeout=(?P<limit>[\d:]+)",
        example="RuntimeError: Timed out initializing process group in store based barrier on rank: 0, for key: "
        "store_based_barrier_key:1 (world_size=8, worker_count=1, timeout=0:30:00)",
        what="only {joined} of {size} ranks reached the rendezvous within {limit}",
    ),
    _rank_missing(
        pattern=r"retrieving ncclUniqueId from \[0\].*got error: (?:Socket Timeout|wait timeout)",
        example="torch.distributed.DistBackendError: [1] is setting up NCCL communicator and retrieving ncclUniqueId "
        "from [0] via c10d key-value store by key '0', but store->get('0') got error: Socket Timeout",
        what="rank 0 did not come to the first collective: it was slower than the limit, or failed before it",
        advice="read the output of rank 0; if it prepares data alone, give init_process_group a larger timeout",
    ),
    _rank_missing(
        pattern=r"RendezvousTimeoutError|DEADLINE_EXCEEDED: .*(?:Barrier|Connect)|stopped sending heartbeats|NCCL "
        r"WARN Bootstrap : timed out after \d+ seconds",
        example="dgx-03: NCCL WARN Bootstrap : timed out after 1200 seconds [rank 24]",
        what="not all nodes came to the rendezvous in time",
        place="line",
    ),
    _rank_missing(
        pattern=r"(?:DistStoreError|RuntimeError|TimeoutError): (?:Socket Timeout$|(?:Timed out|[Tt]imeout) waiting "
        r"for key|"
        r"wait timeout after \d+ms, keys: (?!\S+/\d+$))",
        example="torch.distributed.DistStoreError: Socket Timeout",
        what="a rank waited in vain for a key that another rank should have set",
    ),
    _head_unreachable(
        pattern=r"(?:client socket has timed out after \d+ ?m?s.*|(?<!\] The )client socket has failed to )"
        r"connect to (?:any network address of )?\(?(?P<head>\[[^]]*\]|[^\s,:()]+)(?:, |:)(?P<port>\d+)",
        example="torch.distributed.DistNetworkError: The client socket has timed out after 5000ms while trying to "
        "connect to (n1, 29500).",
        what="the head {head} could not be reached at port {port}: it is late, dead or blocked, or its name is wrong",
        place="line",
    ),
    _head_unreachable(
        pattern=r"\[E.*\] The client socket has failed to connect to any network address of \((?P<head>[^,]+), "
        r"(?P<port>\d+)\)",
        example="[E socket.cpp:7] [c10d] The client socket has failed to connect to any network address of (n1, 295).",
        what="the head {head} could not be reached at port {port}: it is late, dead or blocked, or its name is wrong",
        place="line",
        general=True,
    ),
    _head_unreachable(
        pattern=r"connect\(\) timed out\. Original timeout was (?P<limit>\d+) ms",
        example="RuntimeError: connect() timed out. Original timeout was 60000 ms.",
        what="the head could not be reached within {limit} ms: it is late, dead or blocked, or its name is wrong",
    ),
    _head_unreachable(
        pattern=r"reached no rank 0 at (?P<head>\S+) port (?P<port>\d+) within (?P<limit>[\d.]+) s",
        example="Error: rank 1 on n2 reached no rank 0 at n1 port 29501 within 60 s: n1 resolves to 10.0.0.1; refused",
        what="rank 0 could not be reached at {head} port {port} within {limit} s",
        place="line",
    ),
    _head_unreachable(
        pattern=r"RendezvousConnectionError: |The connection to the C10d store has failed",
        example='"message": "RendezvousConnectionError: The connection to the C10d store has failed.",',
        what="torchrun could not connect to the rendezvous's store: its endpoint is wrong or blocked, or the node that "
        "serves it has not started or has left",
        advice="--rdzv-endpoint must be the job's first host and a free port; `nc -zv HOST PORT` tests it",
        place="line",
    ),
    _head_unreachable(
        pattern=r"failed to shutdown the rendezvous '.*' due to an error of type Rendezvous(?:Connection|Timeout)",
        example="WARNING:torch.distributed.elastic.rendezvous.dynamic_rendezvous:The node 'n2_2288_0' has failed to "
        "shutdown the rendezvous '17' due to an error of type RendezvousConnectionError.",
        what="torchrun lost the rendezvous's store: the node that serves it ended first, or cannot be reached",
        place="line",
        general=True,
    ),
    line_rule(
        key="head-elsewhere",
        pattern=r"rank 0 runs on (?P<host>\S+), but MASTER_ADDR (?P<head>\S+) is another host",
        example="Error: rank 0 runs on n1, but MASTER_ADDR n2 is another host; export MASTER_ADDR as the first host "
        "of the job",
        what="MASTER_ADDR is {head}, but rank 0 runs on {host}",
        advice="let the batch script set MASTER_ADDR, or export it as the first host of the job",
    ),
    line_rule(
        key="name-unresolved",
        pattern=r"IPv[46] network addresses of \((?P<head>[^,]+), \d+\) cannot be retrieved",
        example="[W1121 23:45:49.0 socket.cpp:764] [c10d] The IPv6 network addresses of (gpu07, 29500) cannot be "
        "retrieved (gai error: -2 - Name or service not known).",
        what="the name of the head, {head}, does not resolve on this node",
        advice="set MASTER_ADDR to the NodeAddr that `scontrol show node` prints; `getent hosts NAME` tests a name",
        role="symptom",
        sure="likely",
    ),
    line_rule(
        key="name-unresolved",
        pattern=r"ssh: Could not resolve hostname (?P<head>\S+): ",
        example="ssh: Could not resolve hostname localhost:3: Name or service not known",
        what="a launcher's ssh could not resolve the host name {head}",
        advice="correct the list of hosts and its form (Open MPI: `-H name:slots`), or start the ranks by srun",
    ),
    line_rule(
        key="name-unresolved",
        pattern=r"MASTER_ADDR (?P<head>\S+) .*on (?P<host>\S+), and Slurm gives no address for it",
        example="Error: MASTER_ADDR n1 does not resolve on n2, and Slurm gives no address for it (SLURMDDP_HOSTS and "
        "SLURMDDP_HEAD_ADDRESS do not lead there); put the node into DNS or /etc/hosts",
        what="the name of the head, {head}, does not resolve on {host}",
        advice="ask the cluster's administrators to add the node to DNS or /etc/hosts",
    ),
    line_rule(
        key="remote-start",
        pattern=r"ssh: connect to host (?P<host>\S+) port \d+: (?P<why>.+)|(?P<key>Host key verification failed)|"
        r"Command '(?P<login>ssh [^']*)' returned non-zero exit status 255|"
        r"(?P<denied>Permission denied \(publickey.*)",
        example="ssh: connect to host 192.168.0.119 port 12345: Connection refused",
        what="the launcher could not start ranks on a node by ssh: {why}{key}{denied}{login}",
        advice="`ssh NODE true` must work without a password; or start the ranks by srun, which needs no ssh",
        again=None,
    ),
    Rule(
        key="rank-unset",
        pattern=r"environment variable (?P<name>\w+) expected, but not set|"
        r"KeyError: '(?P<key>(?:LOCAL_)?RANK|(?:LOCAL_)?WORLD_SIZE|MASTER_(?:ADDR|PORT))'$",
        example="ValueError: Error initializing torch.distributed using env:// rendezvous: environment variable RANK "
        "expected, but not set",
        what="{name}{key} is not set: no launcher that sets it started the program",
        advice="start it with `slurmddp submit train.py` or `srun torchrun ...`, or set it from SLURM_PROCID and "
        "SLURM_NTASKS",
    ),
    line_rule(
        key="rank-unset",
        pattern=r"not started by srun: ",
        example="Error: not started by srun: this allocation has SLURM_NTASKS=4 tasks and this process is in no step; "
        "start it with srun: srun python -m slurmddp.worker ...",
        what="the worker was started without srun, so that every process would be rank 0",
        advice="start it with srun: srun python -m slurmddp.worker ...",
    ),
    line_rule(
        key="world-size",
        pattern=r"ranks disagree on the world size: (?P<sizes>.+)",
        example="Error: ranks disagree on the world size: 4 on n1, 2 on n2",
        what="ranks disagree on the world size: {sizes}",
        advice="start all ranks with one srun; check where WORLD_SIZE, SLURM_NTASKS or --nproc-per-node is set",
    ),
    line_rule(
        key="world-size",
        pattern=r"rank (?P<number>\d+) is claimed twice: by (?P<by>.+)",
        example="Error: rank 0 is claimed twice: by n1 (pid 17) and n2 (pid 18)",
        what="two processes are rank {number}: {by}",
        advice="start all ranks with one srun, and do not export RANK or SLURM_PROCID",
    ),
    Rule(
        key="rendezvous-shared",
        pattern=r"'NoneType' object has no attribute 'is_failed'|RendezvousClosedError",
        example="AttributeError: 'NoneType' object has no attribute 'is_failed'",
        what="torchrun's rendezvous was closed: another job uses the same address, or an agent left early",
        advice="use another port and --rdzv-id for each job (`--rdzv-id $SLURM_JOB_ID`)",
        again=True,
        sure="likely",
    ),
    _mesh_failed(
        pattern=r"[Gg]loo connectFullMesh failed|"
        r"gloo/transport/tcp/pair\.cc:\d+\] connect \[[^]]*\]:\d+: Connection (?:refused|timed out)",
        example="RuntimeError: Gloo connectFullMesh failed with [../third_party/gloo/gloo/transport/tcp/pair.cc:144] "
        "no error",
        what="the ranks met but could not connect all pairs: a rank left, the world sizes differ, or "
        "gloo bound to an address that others cannot reach",
        advice="compare RANK and WORLD_SIZE of all ranks; GLOO_SOCKET_IFNAME=NAME chooses the network",
        place="line",
    ),
    _mesh_failed(
        pattern=r"wait timeout after (?P<limit>\d+)ms, keys: \S+/(?P<rank>\d+)$",
        example="torch.distributed.DistStoreError: wait timeout after 60000ms, keys: /default_pg/0//cpu//0/2",
        what="rank {rank} never published its address: it left, or ranks disagree on the world size",
        advice="compare RANK and WORLD_SIZE of all ranks",
    ),
    line_rule(
        key="no-route",
        pattern=r"NCCL WARN .*[Cc]onnect to (?P<peer>[^\s<]+).*(?P<why>No route to host|Network is unreachable)",
        example="n1:610:640 [0] include/socket.h:409 NCCL WARN Net : Connect to 10.0.0.2<41877> failed : No route to "
        "host",
        what="NCCL found no way to {peer} ({why}): a wrong network interface, a firewall, or a node that is down",
        advice="`ip -br addr` on both nodes prints the networks; NCCL_SOCKET_IFNAME chooses one",
        again=None,
        sure="likely",
    ),
    _symptom(
        key="no-route",
        pattern=r"^(?!.*HTTP|OSError: ).*(?:No route to host|Network is unreachable)",
        example="RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:547] connect [10.0.0.7]:41003: No route "
        "to host",
        what="a node has no route to another: a wrong network interface, a firewall, or a node that is down",
        advice="`ip -br addr` on both nodes prints the networks; NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME choose one",
        place="line",
    ),
    Rule(
        key="no-route",
        pattern=r"^OSError: \[Errno \d+\] (?:No route to host|Network is unreachable)",
        example="OSError: [Errno 113] No route to host",
        what="the program could not reach another machine: a wrong network, a firewall, or a machine that is down",
        advice="the traceback names what it tried to reach; nodes often have no access to the internet",
        again=None,
        general=True,
    ),
)

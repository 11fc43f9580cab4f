"""Ranks that do not meet: addresses, ports, numbers. Data only."""

from typing import Final

from slurmddp.diagnose.model import Rule

RULES: Final = (
    Rule(
        key="port-taken",
        pattern=r"server socket has failed to (?:listen|bind).*port: (?P<port>\d+).*EADDRINUSE",
        example="torch.distributed.DistNetworkError: The server socket has failed to listen on any local network "
        "address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
        what="port {port} of the head node is in use: by another program, or by a second process that is rank 0 too",
        advice="submit again, which takes another port; if it comes again, look for two processes with RANK=0",
        again=True,
        place="line",
    ),
    Rule(
        key="port-taken",
        pattern=r"port (?P<port>\d+) on (?P<host>\S+) is taken by (?P<by>.+)",
        example="Error: port 29501 on n1 is taken by a program that is not rank 0 of this job",
        what="port {port} on {host} is taken by {by}",
        advice="submit again, which takes another port; --port-range keeps it away from others",
        again=True,
        place="line",
    ),
    Rule(
        key="port-taken",
        pattern=r"server socket has failed to (?:listen|bind)\b.*?:(?P<port>\d+) \(errno: 98",
        example="[W socket.cpp:426] [c10d] The server socket has failed to listen on [::]:38429 (errno: 98 - Address "
        "already in use).",
        what="port {port} of the head node is in use: by another program, or by a second process that is rank 0 too",
        advice="submit again, which takes another port; if it comes again, look for two processes with RANK=0",
        again=True,
        place="line",
    ),
    Rule(
        key="port-taken",
        pattern=r"server socket has failed to listen on any local network address\. useIpv6\b.*EADDRINUSE",
        example="RuntimeError: The server socket has failed to listen on any local network address. useIpv6: 0, "
        "code: -98, name: EADDRINUSE, message: address already in use",
        what="the port of the head node is in use: by another program, or by a second process that is rank 0 too",
        advice="submit again, which takes another port; if it comes again, look for two processes with RANK=0",
        again=True,
        place="line",
    ),
    Rule(
        key="port-taken",
        pattern=r"OSError: \[Errno 98\] (?:error while attempting to bind.*)?[Aa]ddress already in use",
        example="OSError: [Errno 98] Address already in use",
        what="a port that the program wants is in use on its node",
        advice="give the program another port, or let the system choose one (port 0)",
        again=True,
    ),
    Rule(
        key="rank-missing",
        pattern=r"(?P<who>ranks? (?P<rank>\d+)[\d, ]*(?:\((?P<host>[\w.-]+)\))?.*?) did not arrive "
        r"within (?P<limit>[\d.]+) s",
        example="Error: ranks 2, 3 (n2), rank 5 (n3) did not arrive within 60 s",
        what="{who} did not come to the start within {limit} s",
        advice="look at that rank's own output, and at its node: slurmddp doctor",
        again=None,
        place="line",
        sure="likely",
        role="symptom",
    ),
    Rule(
        key="rank-missing",
        pattern=r"Timed out after (?P<limit>\d+) seconds waiting for clients\. "
        r"(?P<joined>\d+)/(?P<size>\d+) clients joined",
        example="torch.distributed.DistStoreError: Timed out after 61 seconds waiting for clients. 1/2 clients joined.",
        what="only {joined} of {size} ranks came to the start within {limit} s",
        advice="look at the output of the ranks that are missing; a rank that never began has none",
        again=None,
        role="symptom",
        sure="likely",
    ),
    Rule(
        key="rank-missing",
        pattern=r"(?:DistStoreError|RuntimeError): Socket Timeout$",
        example="torch.distributed.DistStoreError: Socket Timeout",
        what="a rank waited in vain for what another should have told it",
        advice="look at the output of the ranks that are missing; a rank that never began has none",
        again=None,
        role="symptom",
        sure="likely",
    ),
    Rule(
        key="head-unreachable",
        pattern=r"client socket has (?:timed out after \d+ ?m?s|failed to connect).*"
        r"connect to \(?(?P<head>\[[^]]*\]|[^\s,:()]+)(?:, |:)(?P<port>\d+)",
        example="torch.distributed.DistNetworkError: The client socket has timed out after 5000ms while trying to "
        "connect to (n1, 29500).",
        what="the head {head} could not be reached at port {port}: late, dead, blocked, or its name leads elsewhere",
        advice="slurmddp doctor",
        again=None,
        place="line",
        role="symptom",
        sure="likely",
    ),
    Rule(
        key="head-unreachable",
        pattern=r"connect\(\) timed out\. Original timeout was (?P<limit>\d+) ms",
        example="RuntimeError: connect() timed out. Original timeout was 60000 ms.",
        what="the head could not be reached within {limit} ms: late, dead, blocked, or its name leads elsewhere",
        advice="slurmddp doctor",
        again=None,
        role="symptom",
        sure="likely",
    ),
    Rule(
        key="head-unreachable",
        pattern=r"reached no rank 0 at (?P<head>\S+) port (?P<port>\d+) within (?P<limit>[\d.]+) s",
        example="Error: rank 1 on n2 reached no rank 0 at n1 port 29501 within 60 s: n1 resolves to 10.0.0.1; refused",
        what="rank 0 could not be reached at {head} port {port} within {limit} s",
        advice="slurmddp doctor",
        again=None,
        place="line",
        role="symptom",
        sure="likely",
    ),
    Rule(
        key="head-elsewhere",
        pattern=r"rank 0 runs on (?P<host>\S+), but MASTER_ADDR (?P<head>\S+) is another host",
        example="Error: rank 0 runs on n1, but MASTER_ADDR n2 is another host; export MASTER_ADDR as the first host "
        "of the job",
        what="MASTER_ADDR is {head}, but rank 0 runs on {host}",
        advice="leave MASTER_ADDR to the batch script, or export it as the first host of the job",
        place="line",
    ),
    Rule(
        key="name-unresolved",
        pattern=r"IPv[46] network addresses of \((?P<head>[^,]+), \d+\) cannot be retrieved",
        example="[W1121 23:45:49.0 socket.cpp:764] [c10d] The IPv6 network addresses of (gpu07, 29500) cannot be "
        "retrieved (gai error: -2 - Name or service not known).",
        what="the name of the head, {head}, does not resolve on this node",
        advice="slurmddp doctor; or MASTER_ADDR as the NodeAddr that `scontrol show node` gives",
        place="line",
        role="symptom",
        sure="likely",
    ),
    Rule(
        key="name-unresolved",
        pattern=r"MASTER_ADDR (?P<head>\S+) .*on (?P<host>\S+), and Slurm gives no address for it",
        example="Error: MASTER_ADDR n1 does not resolve on n2, and Slurm gives no address for it (SLURMDDP_HOSTS and "
        "SLURMDDP_HEAD_ADDRESS do not lead there); put the node into DNS or /etc/hosts",
        what="the name of the head, {head}, does not resolve on {host}",
        advice="ask those who run the cluster to put the node into DNS or /etc/hosts",
        place="line",
    ),
    Rule(
        key="rank-unset",
        pattern=r"environment variable (?P<name>\w+) expected, but not set",
        example="ValueError: Error initializing torch.distributed using env:// rendezvous: environment variable RANK "
        "expected, but not set",
        what="{name} is not set: the program was started neither by srun with slurmddp's worker nor by torchrun",
        advice="start it with `slurmddp submit train.py`, or with torchrun",
    ),
    Rule(
        key="rank-unset",
        pattern=r"not started by srun: ",
        example="Error: not started by srun: this allocation has SLURM_NTASKS=4 tasks and this process is in no step; "
        "start it with srun: srun python -m slurmddp.worker ...",
        what="the worker was started without srun, so that every process would be rank 0",
        advice="start it with srun: srun python -m slurmddp.worker ...",
        place="line",
    ),
    Rule(
        key="world-size",
        pattern=r"ranks disagree on the world size: (?P<sizes>.+)",
        example="Error: ranks disagree on the world size: 4 on n1, 2 on n2",
        what="ranks disagree on how many they are: {sizes}",
        advice="start all of them by one srun; see what exports WORLD_SIZE, SLURM_NTASKS or --nproc-per-node",
        place="line",
    ),
    Rule(
        key="world-size",
        pattern=r"rank (?P<number>\d+) is claimed twice: by (?P<by>.+)",
        example="Error: rank 0 is claimed twice: by n1 (pid 17) and n2 (pid 18)",
        what="two processes are rank {number}: {by}",
        advice="start all of them by one srun, and let nothing export RANK or SLURM_PROCID",
        place="line",
    ),
    Rule(
        key="rendezvous-shared",
        pattern=r"'NoneType' object has no attribute 'is_failed'|RendezvousClosedError",
        example="AttributeError: 'NoneType' object has no attribute 'is_failed'",
        what="torchrun's agents found their meeting closed: another job met at the same address, or one left early",
        advice="another port and another --rdzv-id for each job (`--rdzv-id $SLURM_JOB_ID`), or slurmddp submit",
        again=True,
        sure="likely",
    ),
    Rule(
        key="mesh-failed",
        pattern=r"[Gg]loo connectFullMesh failed|"
        r"gloo/transport/tcp/pair\.cc:\d+\] connect \[[^]]*\]:\d+: Connection (?:refused|timed out)",
        example="RuntimeError: Gloo connectFullMesh failed with [../third_party/gloo/gloo/transport/tcp/pair.cc:144] "
        "no error",
        what="the ranks found one another but could not connect all pairs: a rank that left, another world size, or "
        "gloo bound to an address that others do not reach",
        advice="compare RANK and WORLD_SIZE of all ranks; --interface NAME chooses the network",
        again=None,
        place="line",
        role="symptom",
        sure="likely",
    ),
    Rule(
        key="mesh-failed",
        pattern=r"wait timeout after (?P<limit>\d+)ms, keys: \S+/(?P<rank>\d+)$",
        example="torch.distributed.DistStoreError: wait timeout after 60000ms, keys: /default_pg/0//cpu//0/2",
        what="rank {rank} never gave its address: it left, or ranks disagree on the world size",
        advice="compare RANK and WORLD_SIZE of all ranks",
        again=None,
        role="symptom",
        sure="likely",
    ),
    Rule(
        key="no-route",
        pattern=r"^(?!.*HTTP).*(?:No route to host|Network is unreachable)",
        example="RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:547] connect [10.0.0.7]:41003: No route "
        "to host",
        what="a node has no way to another's address: wrong network interface, a firewall, or a node that is gone",
        advice="slurmddp doctor; --interface NAME chooses the network",
        again=None,
        place="line",
        role="symptom",
        sure="likely",
    ),
    Rule(
        key="no-interface",
        pattern=r"Bootstrap : no socket interface found|Unable to find (?:address|interface) for: ?(?P<name>\S*)",
        example="n1:17:17 [0] NCCL WARN Bootstrap : no socket interface found",
        what="the network interface that was asked for is not on this node",
        advice="slurmddp doctor; --interface NAME chooses another",
        place="line",
    ),
)

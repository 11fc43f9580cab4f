"""What kernels, drivers, NCCL, Slurm and launchers print, each alone as a whole log: told by the right cause."""

import io

import pytest

from slurmddp.diagnose.output_files import diagnose_output

PRINTED = {
    "rank-killed": r"""
[launch.py:320:sigkill_handler] ['/opt/python', '-u', 'train.py', '--local_rank=1'] exits with return code = -9
E0301 12:00:00.1 1 torch/distributed/elastic/multiprocessing/api.py:826] failed (exitcode: -9) local_rank: 0
subprocess.CalledProcessError: Command '['python', 'train.py']' died with <Signals.SIGKILL: 9>.
subprocess.CalledProcessError: Command '['python', 'train.py']' returned non-zero exit status 137.
mpirun noticed that process rank 3 with PID 0 on node n2 exited on signal 9 (Killed).
=   KILLED BY SIGNAL: 9 (Killed)
YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)
Process finished with exit code 137 (interrupted by signal 9: SIGKILL)
traceback : Signal 9 (SIGKILL) received by PID 4711
zsh: killed     python train.py
[1]    4711 killed     python train.py
  6%|██████    | 3787/62565 [04:47<1:10:53, 13.82it/s]Killed
container exited with code 137
(me) [user@n1 work]$ ./train.sh\nKilled\n(me) [user@n1 work]$""",
    "segfault": r"""
python[349]: segfault at 34 ip 00007f3d56e45970 sp 00007ffd241f9130 error 4 in libhsa-runtime64.so[45970,7f3d+117000]
RuntimeError: mpirun failed with exit code 139
] exits with return code = -11
[1]    4711 segmentation fault (core dumped)  python train.py
torch.multiprocessing.spawn.ProcessExitedException: process 1 terminated with signal SIGSEGV
The exit codes of the workers are {SIGSEGV(-11)}
*** SIGSEGV (@0x9ec) received by PID 2540 (TID 0x7f642c526700) from PID 2540; stack trace: ***
[n1:04711] Signal: Segmentation fault (11)
mpirun noticed that process rank 0 with PID 4711 on node n1 exited on signal 11 (Segmentation fault).
Segmentation fault (core dumped)
Received signal 11 SEGV_MAPERR 000000000018
=   EXIT CODE: 139""",
    "rank-aborted": r"""
exitcode  : -6 (pid: 4711)
Aborted (core dumped)
] exits with return code = -6""",
    "bus-error": r"""
exitcode: -7
Bus error (core dumped)
Signal 7 (SIGBUS) received by PID 4711""",
    "out-of-memory": r"""
slurmstepd: error: Exceeded step memory limit at some point.
Memory cgroup out of memory: Killed process 4711 (python) total-vm:5kB, anon-rss:3kB, file-rss:7kB
oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=step_0,mems_allowed=0,task=python,pid=4711,uid=1000
slurmstepd: error: Detected 1 oom_kill event in StepId=17.batch. Some of the step tasks have been OOM Killed.
Last State: Terminated, Reason: OOMKilled, Exit Code: 137""",
    "host-memory": r"""
[2059991.491542] Out of memory: Killed process 25315 (python3) total-vm:53312244kB, anon-rss:31451456kB
Nov 21 23:10:00 n1 kernel: Out of memory: Kill process 25315 (python3) score 911 or sacrifice child
oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task=python3,pid=25315
oom_reaper: reaped process 25315 (python3), now anon-rss:0kB, file-rss:74732kB, shmem-rss:12296kB
python3 invoked oom-killer: gfp_mask=0x100cca(GFP_HIGHUSER_MOVABLE), order=0, oom_score_adj=0
Out of memory: Killed process 25315 (python3) total-vm:53312244kB\nKilled""",
    "gpu-broken": r"""
Failed to initialize NVML: Driver Not Loaded
Unable to determine the device handle for GPU0000:A1:00.0: Unknown Error
NVRM: The NVIDIA probe routine failed for 1 device(s).
fedora kernel: [drm:mes_v11_0_submit_pkt [amdgpu]] *ERROR* MES failed to response msg=3
NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', GPU has fallen off the bus.
NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.
XidCriticalError: Xid=48 on Device=GPU-3f5, the device will go unhealthy.
NVRM: GPU6 _kgspIsHeartbeatTimedOut: Heartbeat timed out, currentTimeMs 812751949 heartbeat 1899482
NVRM: _kgspLogRpcTimeout: ****************************** GSP Timeout ******************************
NVRM: Timeout after 45s of waiting for RPC response from GPU0 GSP!
nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up
NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x22:0x56:762)
[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring gfx timeout, signaled seq=1, emitted seq=3
amdgpu 0000:03:00.0: amdgpu: GPU reset begin!
HW Exception by GPU node-1 (Agent handle: 0x55a0) reason :GPU Hang
CUDA_ERROR_ECC_UNCORRECTABLE: uncorrectable ECC error encountered""",
    "fabric-manager": r"""
CUDA initialization: Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized
RuntimeError: CUDA error: system not yet initialized
NCCL WARN Cuda failure 802 'system not yet initialized'""",
    "gpu-memory": r"""
RuntimeError: cuda runtime error (2) : out of memory at /opt/conda/THCStorage.cu:58
rocm_driver.cc:600] failed to allocate 3.08G (3304535552 bytes) from device: HIP_ERROR_OutOfMemory
torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 64 GiB
jaxlib.xla_extension.XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 8589934592 bytes.
ResourceExhaustedError: OOM when allocating tensor with shape[64,512,512,3] and type float on GPU:0""",
    "illegal-address": r"""
RuntimeError: cuda runtime error (4) : unspecified launch failure at /opt/conda/THC.cu:58
Memory access fault by GPU node-2 (Agent handle: 0x1) on address 0x422ea6b000. Reason: Page not present.
amdgpu 0000:03:00.0: amdgpu: [gfxhub0] no-retry page fault (src_id:0 ring:24 vmid:8 pasid:32769
RuntimeError: HIP error: an illegal memory access was encountered
Queue at 0x7f53 inactivated due to async error:\n\tHSA_STATUS_ERROR_EXCEPTION: An HSAIL op failed.""",
    "kernels-missing": r"""
RuntimeError: HIP error: invalid device function
hipErrorNoBinaryForGpu: Unable to find code object for all current devices!""",
    "no-gpu": r"""
RuntimeError: No HIP GPUs are available
Unable to open /dev/kfd read-write: Permission denied""",
    "math-library": r"""
MIOpen Error: /MIOpen/src/ocl/convolutionocl.cpp:517: No suitable algorithm was found to execute the convolution
RuntimeError: miopenStatusUnknownError""",
    "nccl-gpu-call": r"""
n1:1:2 [0] transport/p2p.cc:237 NCCL WARN Cuda failure 'invalid argument'
n1:1:2 [0] /src/rccl/transport/shm.cc:110 NCCL WARN HIP failure 'operation not supported'
n1:1:2 [0] misc/nvmlwrap.cc:187 NCCL WARN nvmlDeviceGetHandleByPciBusId() failed: Not Found""",
    "network-failed": r"""
ncclSystemError: System call failed.\nLast error:\nsocketStartConnect: Connect to 10.0.0.2<4> failed : Aborted by host
gpu7:4105:4372 [0] include/socket.h:318 NCCL WARN Net : Socket creation failed : Address family not supported
n1:1:2 [0] misc/socket.cc:483 NCCL WARN socketStartConnect: Connect to 10.0.0.2<45763> failed : Connection refused
n1:1:2 [0] include/socket.h:403 NCCL WARN Connect to 10.0.0.2<45763> failed : Connection timed out
n1:1:2 [0] include/socket.h:423 NCCL WARN Net : Call to recv from 10.0.0.2<45763> failed : Broken pipe
n1:1:2 [0] misc/socket.cc:538 NCCL WARN socketPollConnect: connect to 10.0.0.2<4> returned 111(Connection refused)""",
    "collective-timeout": r"""
[2024-01-01 W stall_inspector.cc:107] Stalled ranks:
[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4, OpType=BROADCAST, NumelIn=112, Numel
pe=BROADCAST, NumelIn=112, NumelOut=112, Timeout(ms)=1800000) ran for 1800010 milliseconds before timing out.
[Rank 1] Exception (either an error or timeout) detected by watchdog at work: 4, last enqueued NCCL work: 4
 - To our best knowledge, ranks [1,2] are the lagging ranks that caused this timeout.
[1, 2] joined but didn't finish collective #7 (count from 1)
[Rank 0] Timeout at NCCL work: 4, last enqueued NCCL work: 6, last completed NCCL work: 3.""",
    "head-unreachable": r"""
  "message": "RendezvousConnectionError: The connection to the C10d store has failed.",
torch.distributed.DistNetworkError: The client socket has failed to connect to any network address of (n1, 29500).
[E socket.cpp:858] [c10d] The client socket has timed out after 60s while trying to connect to (10.0.0.1, 29500).""",
    "rank-missing": r"""
jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Id: 3
torch.distributed.DistStoreError: Timed out after 61 seconds waiting for clients. 1/2 clients joined.
torch.distributed.DistStoreError: wait timeout after 300000ms, keys: /store_based_barrier_key:1""",
    "limit-refused": r"""
salloc: error: Job submit/allocate failed: Job violates accounting/QOS policy (job submit limit)
sbatch: error: AssocMaxSubmitJobLimit
sbatch: error: QOSMaxWallDurationPerJobLimit""",
    "job-refused": r"""
sbatch: error: !!! ERROR: submitted to gpu32 without an account.\nsbatch: error: Batch job submission failed: \
Unspecified error
salloc: error: Job submit/allocate failed: Requested nodes are busy
srun: error: Unable to allocate resources: Invalid license specification
sbatch: error: Batch job submission failed: Invalid wckey specification
srun: fatal: No command given to execute.""",
    "allocation-ended": r"""
srun: error: Unable to confirm allocation for job 17: Invalid job id specified
srun: error: Unable to create step for job 17: Job/step already completing or completed""",
    "mpi-type": r"""
srun: error: Couldn't find the specified plugin name for mpi/pmix_v5 looking at all files
slurmstepd: error: mpi/pmi2: value not properly terminated in client request""",
    "remote-start": r"""
ssh: connect to host 192.168.0.119 port 12345: Connection refused
n2: Host key verification failed.""",
    "network-unreachable": r"""
Last error:\nCall to ibv_modify_qp failed with error No such device""",
    "nccl-shared-memory": r"""
Last error:\nError while creating shared memory segment /dev/shm/nccl-UbzKZ9 (size 9637888)""",
    "terminal-closed": r"""
torch.distributed.elastic.multiprocessing.api.SignalException: Process 4711 got signal: 1""",
    "interrupted": r"""
torch.distributed.elastic.multiprocessing.api.SignalException: Process 4711 got signal: 2""",
    "ray-missing": r"""
Failed to connect to GCS at address 10.0.0.1:6379 within 5 seconds.
Exception: The current node timed out during startup.""",
    "ray-resources": r"""
Error: No available node types can fulfill resource request {'GPU': 8.0}.""",
    "munge": r"""
srun: error: Munge encode failed: Failed to access "/run/munge/munge.socket.2": No such file or directory
slurmstepd: error: Munge decode failed: Expired credential""",
    "launch-failed": r"""
srun: error: Application launch failed: Invalid job credential
srun: error: Task launch for StepId=17.0 failed on node n2: Communication connection failure
srun: error: fwd_tree_thread: can't find address for host n7, check slurm.conf""",
    "output-missing": r"""
slurmstepd: error: Could not open stdout file /logs/17.out: No such file or directory""",
    "time-limit": r"""
[2026-11-21T23:10:00.123] error: *** JOB 17 ON n1 CANCELLED AT 2026-11-21T23:10:00 DUE TO TIME LIMIT ***""",
    "cancelled": r"""
srun: Force Terminated job 17
salloc: Job allocation 17 has been revoked.""",
    "container-failed": r"""
docker: Error response from daemon: could not select device driver "" with capabilities: [[gpu]].
slurmstepd: error: pyxis: failed to import docker image\nslurmstepd: error: pyxis:     mkdir: cannot create directory \
'/run/enroot': Permission denied
unsquashfs: failed to open image.sqsh, because Permission denied
FATAL:   while extracting image.sif: root filesystem extraction failed: extract command failed: permission denied""",
    "mpi-failed": r"""
*** An error occurred in MPI_Init_thread
[n1:94018] PMIX ERROR: NOT-FOUND in file ptl_usock.c at line 175
Abort(1090831) on node 3 (rank 3 in comm 0): Fatal error in PMPI_Init: Other MPI error, error stack:
[n1:1] *** MPI_ERR_TRUNCATE: message truncated
[1700000000.123456] [n1:4711:0] ib_device.c:1 UCX  ERROR mlx5_0: could not open the device""",
    "mpi-root": r"""
mpirun has detected an attempt to run as root.""",
    "shape-mismatch": r"""
RuntimeError: [enforce fail at ../gloo/transport/tcp/pair.cc:446] op.preamble.length <= op.nbytes. 8 vs 4""",
    "worker-killed": r"""
concurrent.futures.process.BrokenProcessPool: A process in the process pool was terminated abruptly""",
    "ray-actor-died": r"""
(raylet) A worker died. Worker exit type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits
ray.exceptions.WorkerCrashedError: The worker died unexpectedly while executing this task.
ray.exceptions.RayActorError: The actor died because its node has died. Node Id: 4f2""",
    "nccl-failed": r"""
n1:24:24 [0] transport/p2p.cc:272 NCCL WARN Cuda mem import failed\nsrun: error: n1: task 0: Exited with exit code 1
RuntimeError: NCCL error in: ../ProcessGroupNCCL.cpp:825, unhandled system error, NCCL version 2.7.8""",
}
"""By the cause; `\n` stands for a new line of the same log."""


@pytest.mark.parametrize(
    ("cause", "text"),
    [(cause, text) for cause, texts in PRINTED.items() for text in texts.replace("\\\n", "").strip("\n").splitlines()],
)
def test_a_line_of_the_infrastructure_is_told_by_its_cause(cause, text):
    found = diagnose_output(["-"], io.BytesIO(text.replace("\\n", "\n").replace("\\t", "\t").encode() + b"\n"))
    assert found.cause == cause, found.what


def test_an_abort_that_follows_is_not_the_cause_and_a_signal_does_not_hide_one():
    for text, cause in (
        (
            "terminate called after throwing an instance of 'c10::Error'\n  what():  boom\nAborted (core dumped)\n",
            "last-words",
        ),
        ("Out of memory: Killed process 253 (python3) total-vm:53kB\nKilled\n", "host-memory"),
        ("torch.OutOfMemoryError: CUDA out of memory.\n] exits with return code = -6\n", "gpu-memory"),
        ("[launch.py:320:sigkill_handler] ['/opt/python', '-u', 't.py'] exits with return code = 1\n", "unknown"),
        ("(raylet) (1) the process was killed by SIGKILL by OOM killer due to high memory usage.\n", "unknown"),
    ):
        assert diagnose_output(["-"], io.BytesIO(text.encode())).cause == cause, text


def test_a_process_that_lost_its_peer_says_so_and_accuses_nobody():
    text = b"n1:1:2 [0] misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer node1<57557>\n"
    found = diagnose_output(["-"], io.BytesIO(text))
    assert (found.cause, found.rank, "lost its peer" in found.what) == ("unknown", None, True)


def test_evidence_of_a_long_line_is_what_was_matched():
    text = f"[launch.py:320:sigkill_handler] ['/opt/python', {'x' * 900}] exits with return code = -9\n"
    found = diagnose_output(["-"], io.BytesIO(text.encode()))
    assert found.evidence[0].text.endswith("return code = -9") and len(found.evidence[0].text) <= 300

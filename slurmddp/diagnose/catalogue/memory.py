"""Failures of memory: of the host, of shared memory and of GPUs. Data only."""

from functools import partial
from typing import Final

from slurmddp.diagnose.rule_types import Rule, line_rule

_ADVICE = "ask for more (--mem), or use less: fewer loader workers, smaller batches; sacct's MaxRSS shows the use"

_out_of_memory = partial(
    line_rule,
    key="out-of-memory",
    what="the job used more memory than it had asked for, and Slurm killed it",
    advice=_ADVICE,
)
_loader_shared_memory = partial(
    Rule,
    key="loader-shared-memory",
    what="the data loader's workers have filled /dev/shm",
    advice="use a larger /dev/shm, fewer workers, or torch.multiprocessing.set_sharing_strategy('file_system')",
)
_gpu_memory = partial(
    Rule,
    key="gpu-memory",
    advice="use a smaller batch with accumulation, lower precision or activation checkpointing; if only GPU 0 is full, "
    "let each rank choose its own GPU (torch.cuda.set_device)",
)
_host_memory = partial(Rule, key="host-memory", advice=_ADVICE)

RULES: Final = (
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
        pattern=r"Exceeded (?:job|step) memory limit",
        example="slurmstepd: error: Exceeded job memory limit",
        role="symptom",
    ),
    _out_of_memory(
        pattern=r"tasks? (?P<tasks>[\d,-]+): Out Of Memory",
        example="srun: error: n2: task 1: Out Of Memory",
        what="the job used more memory than it had asked for, and the kernel killed task {tasks}",
    ),
    _out_of_memory(
        pattern=r"(?i:memory cgroup) out of memory|oom-kill:constraint=CONSTRAINT_MEMCG(?:.*,task=(?P<name>[^,]+))?|"
        r"\bOOMKilled\b|killed by the OOM killer",
        example="Memory cgroup out of memory: Killed process 4711 (python) total-vm:53312244kB, anon-rss:31451456kB",
        what="the kernel killed a process: the memory of the job, or of its container, was used up {name}",
    ),
    _loader_shared_memory(
        pattern=r"DataLoader worker \(pid(?:\(s\))? [^)]*\) is killed by signal: Bus error",
        example="RuntimeError: DataLoader worker (pid 4711) is killed by signal: Bus error. It is possible that "
        "dataloader's workers are out of shared memory. Please try to raise your shared memory limit.",
    ),
    _loader_shared_memory(
        pattern=r"^(?!.*(?:Too many open files|object <[^>]+> in read-write mode$)).*"
        r"unable to (?:allocate|open|mmap|write)\b.*(?:shared memory|</torch_)",
        example="RuntimeError: unable to allocate shared memory(shm) for file </torch_17_1_0>: No space left on "
        "device (28)",
        what="the node's shared memory is full or too small for the data loader's workers",
    ),
    _loader_shared_memory(
        pattern=r"unable to open shared memory object <\S+> in read-write mode$",
        example="RuntimeError: unable to open shared memory object </torch_30997_2076642173> in read-write mode",
        what="the data loader's workers cannot open shared memory: too many files are open, or /dev/shm is full",
        sure="likely",
        general=True,
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
        r"(?:is killed by signal: (?!Terminated|Aborted)(?P<signal>[\w ]+)|exited unexpectedly)",
        example="RuntimeError: DataLoader worker (pid 4711) is killed by signal: Killed.",
        what="a worker of the data loader was killed; the kernel does this when the node runs out of memory",
        advice="use fewer workers or more --mem; num_workers=0 shows whether the data loader is the reason",
        again=None,
        sure="likely",
        general=True,
    ),
    Rule(
        key="loader-ended",
        pattern=r"DataLoader worker \(pid(?:\(s\))? [^)]*\) is killed by signal: (?P<signal>Terminated|Aborted)",
        example="RuntimeError: DataLoader worker (pid 4020404) is killed by signal: Terminated.",
        what="a worker of the data loader was ended ({signal}) when its program ended, or was told to end",
        advice="look for what ended the program: an error of another rank, scancel, a time limit",
        again=None,
        role="symptom",
        sure="likely",
        general=True,
    ),
    _gpu_memory(
        pattern=r"(?:CUDA|HIP|XPU|NPU) out of memory|(?:CUDA|HIP) error: out of memory|"
        r"(?:CU|HIP|ROC)BLAS_STATUS_ALLOC_FAILED",
        example="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
        "79.15 GiB of which 1.20 GiB is free.",
        what="the memory of the GPU is full",
    ),
    _gpu_memory(
        pattern=r"(?:CUDA|HIP)_ERROR_O(?:UT_OF_MEMORY|utOfMemory)\b|cudaErrorMemoryAllocation|hipErrorOutOfMemory|"
        r"cudaMalloc failed: out of memory|cuda runtime error \(\d+\) ?: out of memory|OOM when allocating tensor|"
        r"RESOURCE_EXHAUSTED: Out of memory|"
        r"HSA_STATUS_ERROR_OUT_OF_RESOURCES",
        example="E rocm_driver.cc:600] failed to allocate 3.08G (3304535552 bytes) from device: HIP_ERROR_OutOfMemory",
        what="the memory of the GPU is full",
        place="line",
    ),
    _gpu_memory(
        pattern=r"(?:NCCL WARN |^)(?:Cuda|HIP) failure (?:\d+ )?'out of memory'",
        example="include/alloc.h:228 NCCL WARN Cuda failure 2 'out of memory'",
        what="the memory of the GPU is full: there was none left for NCCL's buffers",
        place="line",
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
        pattern=r"memory allocation of \D*(?P<size>\d+)\D* ?(?:bytes failed|$)",
        example="memory allocation of 2097152 bytes failed",
        what="the system had no more memory: an allocation of {size} bytes failed",
        place="line",
    ),
    _host_memory(
        pattern=r"[Ww]orkers? \(tasks / actors\) killed due to memory pressure",
        example="(raylet) node_manager.cc:3277: 2 Workers (tasks / actors) killed due to memory pressure (OOM), 0 "
        "Workers "
        "crashed due to other reasons",
        what="ray killed workers because the memory of the node was nearly full",
        place="line",
    ),
    _host_memory(
        pattern=r"\[Errno 12\] Cannot allocate memory|std::bad_alloc|Unable to allocate [\d.]+ [KMGT]iB for an array",
        example="OSError: [Errno 12] Cannot allocate memory",
        what="the system had no more memory for the program",
    ),
    _host_memory(
        pattern=r"Task was killed due to the node running low on memory",
        example="ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.",
        what="ray killed a task because the node had nearly no memory left",
        place="line",
    ),
    _host_memory(
        pattern=r"[Oo]ut of memory: Kill(?:ed)? process \d+,? \(?(?P<name>[^\s,)]+)|"
        r"oom-kill:constraint=CONSTRAINT_(?!MEMCG)\w+(?:.*,task=(?P<task>[^,]+))?|"
        r"oom_reaper: reaped process \d+ \((?P<reaped>[^)]+)|(?P<by>\S+) invoked oom-killer|"
        r"systemd-oomd.* [Kk]illed|earlyoom.*sending SIG",
        example="[2059991.491542] Out of memory: Killed process 25315 (python3) total-vm:53312244kB",
        what="the kernel killed a process because the memory of the whole node was used up: {name}{task}{reaped}",
        place="line",
    ),
    line_rule(
        key="process-limit",
        pattern=r"pthread_create failed for thread \d+ of \d+|can't start new thread",
        example="RuntimeError: can't start new thread",
        what="the program may not start another thread: the limit of processes and threads is reached",
        advice="use fewer loader workers, and export OMP_NUM_THREADS=4; `ulimit -u` prints the limit",
    ),
)

"""Memory of nodes and of GPUs. Data only."""

from typing import Final

from slurmddp.diagnose.model import Rule

_LESS = "ask for more (--mem), or use less: fewer loader workers, smaller batches; sacct's MaxRSS says how much it was"

RULES: Final = (
    Rule(
        key="out-of-memory",
        pattern=r"Detected (?P<count>\d+) oom[_-]kill event(?:\(?s\)?)? in (?P<step>\S+)",
        example="slurmstepd: error: Detected 1 oom_kill event in StepId=17.0. Some of the step tasks have been OOM "
        "Killed.",
        what="the job used more memory than it had asked for, and the kernel killed what it needed to",
        advice=_LESS,
        place="line",
    ),
    Rule(
        key="out-of-memory",
        pattern=r"(?:slurmstepd-(?P<host>[\w.-]+): error: .*)?exceeded (?:job |step )?memory limit "
        r"\(\d+ > \d+\), being killed",
        example="slurmstepd-n2: error: StepId=17.0 exceeded memory limit (356294656 > 314572800), being killed",
        what="the job used more memory than it had asked for, and Slurm killed it",
        advice=_LESS,
        place="line",
    ),
    Rule(
        key="out-of-memory",
        pattern=r"Exceeded job memory limit",
        example="slurmstepd: error: Exceeded job memory limit",
        what="the job used more memory than it had asked for, and Slurm killed it",
        advice=_LESS,
        role="symptom",
        place="line",
    ),
    Rule(
        key="out-of-memory",
        pattern=r"tasks? (?P<tasks>[\d,-]+): Out Of Memory",
        example="srun: error: n2: task 1: Out Of Memory",
        what="the job used more memory than it had asked for, and the kernel killed task {tasks}",
        advice=_LESS,
        place="line",
    ),
    Rule(
        key="loader-shared-memory",
        pattern=r"DataLoader worker \(pid(?:\(s\))? [^)]*\) is killed by signal: Bus error",
        example="RuntimeError: DataLoader worker (pid 4711) is killed by signal: Bus error. It is possible that "
        "dataloader's workers are out of shared memory. Please try to raise your shared memory limit.",
        what="the data loader's workers have filled /dev/shm",
        advice="a larger /dev/shm, fewer workers, or torch.multiprocessing.set_sharing_strategy('file_system')",
    ),
    Rule(
        key="loader-shared-memory",
        pattern=r"^(?!.*Too many open files).*unable to (?:allocate|open|mmap|write)\b.*(?:shared memory|</torch_)",
        example="RuntimeError: unable to allocate shared memory(shm) for file </torch_17_1_0>: No space left on "
        "device (28)",
        what="the node's shared memory is full, or too small for the data loader's workers",
        advice="a larger /dev/shm, fewer workers, or torch.multiprocessing.set_sharing_strategy('file_system')",
    ),
    Rule(
        key="loader-shared-memory",
        pattern=r"Unexpected bus error encountered in worker\. This might be caused by insufficient shared memory",
        example="ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory "
        "(shm).",
        what="the data loader's workers have filled /dev/shm",
        advice="a larger /dev/shm, fewer workers, or torch.multiprocessing.set_sharing_strategy('file_system')",
        place="line",
    ),
    Rule(
        key="loader-killed",
        pattern=r"DataLoader worker \(pid(?:\(s\))? [^)]*\) "
        r"(?:is killed by signal: (?P<signal>[\w ]+)|exited unexpectedly)",
        example="RuntimeError: DataLoader worker (pid 4711) is killed by signal: Killed.",
        what="a worker of the data loader was killed; the kernel does so when memory runs out",
        advice="num_workers=0 shows whether it is the loader; fewer workers, or more --mem",
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
        advice="a smaller batch a rank with accumulation, lower precision, or activation checkpointing; if GPU 0 "
        "alone is full, each rank has to take its own (torch.cuda.set_device)",
    ),
    Rule(
        key="host-memory",
        pattern=r"^MemoryError\b",
        example="MemoryError",
        what="Python got no more memory from the system",
        advice=_LESS,
    ),
    Rule(
        key="host-memory",
        pattern=r"can't allocate memory: you tried to allocate (?P<size>\d+) bytes",
        example="RuntimeError: [enforce fail at alloc_cpu.cpp:121] err == 0. DefaultCPUAllocator: can't allocate "
        "memory: you tried to allocate 8589934592 bytes. Error code 12 (Cannot allocate memory)",
        what="torch got no more memory from the system: {size} bytes were too many",
        advice=_LESS,
    ),
    Rule(
        key="host-memory",
        pattern=r"\[Errno 12\] Cannot allocate memory",
        example="OSError: [Errno 12] Cannot allocate memory",
        what="the system had no more memory for the program",
        advice=_LESS,
    ),
)

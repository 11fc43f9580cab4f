"""Trains with a handler of its own for USR1, and nothing of slurmddp: own_handler.py EPOCHS FILE SECONDS_A_STEP.

As published scripts do: the handler sets a flag, all ranks agree on it after a step, and the program saves and ends.
"""

import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS_A_EPOCH = 10


def main(epochs, file, step_s):
    asked = []
    signal.signal(signal.SIGUSR1, lambda *_: asked.append(1))
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    net = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    first = 0
    if Path(file).exists():
        state = torch.load(file, weights_only=True)
        net.load_state_dict(state["net"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["step"]
    model = DistributedDataParallel(net)
    print(f"rank {dist.get_rank()} starts at step {first}", flush=True)

    def save(step):
        if dist.get_rank() == 0:
            new = f"{file}.new"
            torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, new)
            Path(new).replace(file)

    for step in range(first, int(epochs) * STEPS_A_EPOCH):
        rows = torch.randn(4, 8, generator=torch.Generator().manual_seed(step * 1000 + dist.get_rank()))
        optimizer.zero_grad()
        nn.functional.mse_loss(model(rows), rows.sum(dim=1, keepdim=True)).backward()
        optimizer.step()
        time.sleep(float(step_s) + Path("slow").exists())
        flag = torch.tensor(len(asked))
        dist.all_reduce(flag)
        if flag.item():
            save(step + 1)
            print(f"saved by the handler at step {step + 1}", flush=True)
            return
        if (step + 1) % STEPS_A_EPOCH == 0:
            save(step + 1)
            print(f"epoch {(step + 1) // STEPS_A_EPOCH} done", flush=True)
    print(f"final loss {sum(one.double().sum().item() for one in net.parameters()):.17g}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])

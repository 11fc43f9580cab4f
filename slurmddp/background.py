"""Work in a thread that does not keep the process alive, and waiting for what others do. Standard library only."""

import math
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future

Result = TypeVar("Result")


def run_in_background(work: Callable[[], Result]) -> "Future[Result]":
    """Run `work` in a daemon thread; return its Future."""
    from concurrent.futures import Future  # noqa: PLC0415 it loads logging, which slows down every start

    future: Future[Result] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except Exception as error:  # noqa: BLE001 the caller gets it from the Future
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def wait_until(is_true: Callable[[], object], limit_s: float = math.inf, pause_s: float = 0.01) -> bool:
    """Look again and again, once at least, until something is true; return whether it was within the time."""
    deadline = time.monotonic() + limit_s
    while not is_true():
        if time.monotonic() >= deadline:
            return False
        time.sleep(pause_s)
    return True

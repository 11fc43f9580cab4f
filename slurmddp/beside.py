"""Something that takes its time, done in a thread beside whoever waits for it."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

Result = TypeVar("Result")


def beside(work: Callable[[], Result]) -> Future[Result]:
    """Do something in a thread that ends with the program, and does not keep it; return what is to become of it."""
    future: Future[Result] = Future()

    def do() -> None:
        try:
            future.set_result(work())
        except Exception as error:  # noqa: BLE001 whoever waits gets it, whatever it is
            future.set_exception(error)

    threading.Thread(target=do, daemon=True).start()
    return future

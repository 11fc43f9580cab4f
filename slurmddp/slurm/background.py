"""Something that takes its time, done in a thread beside whoever waits for it."""

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from concurrent.futures import Future

Item = TypeVar("Item")
Result = TypeVar("Result")


def beside(work: Callable[[], Result]) -> "Future[Result]":
    """Do something in a thread that ends with the program, and does not keep it; return what is to become of it."""
    from concurrent.futures import Future  # noqa: PLC0415 it loads logging, and every start would pay for it

    future: Future[Result] = Future()

    def do() -> None:
        try:
            future.set_result(work())
        except Exception as error:  # noqa: BLE001 whoever waits gets it, whatever it is
            future.set_exception(error)

    threading.Thread(target=do, daemon=True).start()
    return future


def at_once(work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Return what `work` makes of each item, in a thread each; when all have ended, raise the error of the first."""
    done: dict[int, Result] = {}
    failed: dict[int, Exception] = {}

    def do(index: int) -> None:
        try:
            done[index] = work(items[index])
        except Exception as error:  # noqa: BLE001 raised again below
            failed[index] = error

    threads = [threading.Thread(target=do, args=(index,), daemon=True) for index in range(len(items))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[min(failed)]
    return [done[index] for index in range(len(items))]

"""The thread that analyses."""

from __future__ import annotations

import asyncio
import queue
import threading
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
_STACK = 64 << 20
"""Bytes. Address space only: analysis follows nested sources deeper than a thread's usual stack lets it."""


class Lane:
    """Runs jobs one after the other. A job that nobody waits for any more is dropped before it begins. The thread is a
    daemon: what it is at when the server ends is of no use to anyone. ``idle`` runs when nothing is waiting."""

    def __init__(self, idle: Callable[[], None]) -> None:
        self._jobs: queue.SimpleQueue[tuple[asyncio.Future[Any], Callable[[], Any]]] = queue.SimpleQueue()
        self._idle = idle
        usual = threading.stack_size(_STACK)
        threading.Thread(target=self._work, name="cudalint", daemon=True).start()
        threading.stack_size(usual)

    async def run(self, job: Callable[[], T]) -> T:
        """The job's answer, once it had its turn."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._jobs.put((future, job))
        return await future

    def _work(self) -> None:
        while True:
            future, job = self._jobs.get()
            if future.cancelled():
                continue
            answer, fault = None, None
            try:
                answer = job()
            except Exception as raised:
                fault = raised
            try:
                future.get_loop().call_soon_threadsafe(_settle, future, answer, fault)
            except RuntimeError:
                return  # the loop is closed: the server ends
            if self._jobs.empty():
                self._idle()


def _settle(future: asyncio.Future[Any], answer: Any, fault: Exception | None) -> None:
    if future.cancelled():
        return
    if fault is None:
        future.set_result(answer)
    else:
        future.set_exception(fault)

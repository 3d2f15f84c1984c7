"""The thread that analyses."""

from __future__ import annotations

import asyncio
import ctypes
import queue
import threading
import time
from typing import TYPE_CHECKING, Any, TypeVar

from cudalint.errors import Stopped

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
_STACK = 64 << 20
"""Bytes. Address space only: analysis follows nested sources deeper than a thread's usual stack lets it."""
LIMIT = 20.0
"""Seconds that a job may take."""
GRACE = 2.0
"""Seconds that a job may take which nobody waits for any more: what it reads, the next need not."""
_TICK = 0.25
_AGAIN = 2.0


class Lane:
    """Runs jobs one after the other. A job that nobody waits for any more is dropped before it begins, and one that
    takes too long is stopped. The thread is a daemon: what it is at when the server ends is of no use to anyone.
    ``idle`` runs when nothing is waiting, ``stopped`` after a job that was stopped: what it left is half done."""

    def __init__(self, idle: Callable[[], None], stopped: Callable[[], None]) -> None:
        self._jobs: queue.SimpleQueue[tuple[asyncio.Future[Any], Callable[[], Any]]] = queue.SimpleQueue()
        self._idle, self._stopped = idle, stopped
        self._at: asyncio.Future[Any] | None = None
        self._told_to_stop = False
        self._lock = threading.Lock()
        """Held to change ``_at``, and to stop what is there."""
        usual = threading.stack_size(_STACK)
        self._thread = threading.Thread(target=self._work, name="cudalint", daemon=True)
        self._thread.start()
        threading.stack_size(usual)

    async def run(self, job: Callable[[], T]) -> T:
        """The job's answer, once it had its turn. TimeoutError if that takes too long."""
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._jobs.put((future, job))
        return await future

    def _work(self) -> None:
        while True:
            future, job = self._jobs.get()
            if future.cancelled():
                continue
            answer: Any = None
            fault: Exception | None = None
            self._turn_to(future)
            try:
                future.get_loop().call_soon_threadsafe(self._watch, future, time.monotonic())
            except RuntimeError:
                return  # the loop is closed: the server ends
            try:
                try:
                    answer = job()
                finally:
                    self._turn_to(None)
                    _meet()
            except Stopped:
                self._turn_to(None)
                fault = TimeoutError(f"it takes more than {LIMIT:g} s")
            except Exception as raised:
                fault = raised
            if self._told_to_stop:
                self._told_to_stop = False
                self._stopped()
            try:
                future.get_loop().call_soon_threadsafe(_settle, future, answer, fault)
            except RuntimeError:
                return  # the loop is closed: the server ends
            if self._jobs.empty():
                self._idle()

    def _turn_to(self, future: asyncio.Future[Any] | None) -> None:
        with self._lock:
            self._at = future

    def _watch(self, future: asyncio.Future[Any], began: float) -> None:
        """Stop a job when its time is over; again and again, for where it is may let no exception through."""
        with self._lock:
            if self._at is not future:
                return
            late = time.monotonic() - began > (GRACE if future.cancelled() else LIMIT)
            if late:
                self._told_to_stop = True
                thread = ctypes.c_ulong(self._thread.ident or 0)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, ctypes.py_object(Stopped))
        future.get_loop().call_later(_AGAIN if late else _TICK, self._watch, future, began)


def _meet() -> None:
    """A call is where an exception from another thread arrives, at the latest."""


def _settle(future: asyncio.Future[Any], answer: Any, fault: Exception | None) -> None:
    if future.cancelled():
        return
    if fault is None:
        future.set_result(answer)
    else:
        future.set_exception(fault)

"""An executor that collects calls into jobs."""

from __future__ import annotations

import threading
from concurrent import futures
from typing import Any, Dict, List, Tuple

from ._client import Client, JobError, argument

Pending = List[Tuple["futures.Future[Any]", Any]]


class Executor(futures.Executor):
    """Makes calls of routines, which are given by their names instead of functions.

    Calls that are submitted within `delay` seconds are one job. At most `jobs` jobs run at a time, and `submit` waits
    while `max_pending` calls have not ended.
    """

    def __init__(self, client: Client, *, max_pending: int = 10_000, delay: float = 0.02, jobs: int = 4) -> None:
        self._client = client
        self._delay = delay
        self._room = threading.Semaphore(max_pending)
        self._jobs = futures.ThreadPoolExecutor(jobs, thread_name_prefix="routines")
        self._lock = threading.Lock()
        self._pending: Dict[str, Pending] = {}
        self._is_shut = False

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> futures.Future[Any]:
        """Submits a call of the routine `fn`, a name such as "square@1.0"."""
        if not isinstance(fn, str):
            raise TypeError(f"give the name of a routine, such as 'square@1.0', not {fn!r:.100}")
        given = argument(args, kwargs)
        self._room.acquire()
        future: futures.Future[Any] = futures.Future()
        future.add_done_callback(lambda _: self._room.release())
        with self._lock:
            if self._is_shut:
                self._room.release()
                raise RuntimeError("cannot submit calls after shutdown")
            pending = self._pending.setdefault(fn, [])
            pending.append((future, given))
            if len(pending) == 1:
                timer = threading.Timer(self._delay, self._send, [fn])
                timer.daemon = True
                timer.start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Accepts no more calls. Waits for those that were submitted, unless `wait` is false."""
        with self._lock:
            self._is_shut = True
            routines = list(self._pending)
            if cancel_futures:
                for future, _ in [call for calls in self._pending.values() for call in calls]:
                    future.cancel()
        for routine in routines:
            self._send(routine)
        self._jobs.shutdown(wait=wait)

    def _send(self, routine: str) -> None:
        """Starts the job of the pending calls of a routine."""
        with self._lock:
            calls = self._pending.pop(routine, [])
            calls = [call for call in calls if call[0].set_running_or_notify_cancel()]
            if calls:
                # Under the lock, so that `shutdown` comes before or after it.
                self._jobs.submit(self._run, routine, calls)

    def _run(self, routine: str, calls: Pending) -> None:
        left = dict(enumerate(future for future, _ in calls))
        try:
            job = self._client._submit(routine, [given for _, given in calls])
            for result in job.results():
                future = left.pop(result.index)
                if result.error is None:
                    future.set_result(result.value)
                else:
                    future.set_exception(result.error)
            error: BaseException = JobError(f"job {job.id} has no result of this call")
        except BaseException as failed:
            error = failed
        for future in left.values():
            future.set_exception(error)

"""The client of a gateway."""

from __future__ import annotations

import asyncio
import atexit
import ipaddress
import json
import os
import shutil
import stat
import subprocess
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Iterable, Iterator, Mapping, Optional, Sequence, Type, Union
from urllib.parse import quote, urlencode, urlsplit

from ._space import Space, document, is_described
from ._values import Resource, encode, special

if TYPE_CHECKING:
    from ._executor import Executor

URL = "http://127.0.0.1:8790"
WAIT_SECONDS = 30
# "mean", {"topk": 10} or {"histogram": {"from": 0, "to": 1, "bins": 20}}.
Reduction = Union[str, Mapping[str, Any]]
# The name of an argument, or its position.
Selector = Union[str, int]
OVER = ("successful", "incomplete", "failed", "cancelled")


class RequestError(Exception):
    """The gateway refuses a request."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


class JobError(Exception):
    """A job has no results."""


class CallError(Exception):
    """A call has failed.

    `kind` is `user`, `invalid`, `crash`, `timeout`, `cancelled` or `outcome-unknown`; `trace` is that of the routine.
    """

    def __init__(self, kind: str, message: str, trace: str = "") -> None:
        super().__init__(f"{message}\n\n{trace}" if trace else message)
        self.kind = kind
        self.message = message
        self.trace = trace


@dataclass(frozen=True)
class Result:
    """The outcome of one call."""

    index: int
    _value: Any
    error: Optional[CallError]

    @property
    def value(self) -> Any:
        """The value; raises the error of a failed call."""
        if self.error is not None:
            raise self.error
        return self._value


class Client:
    """Access to a gateway. Safe to use from several threads."""

    def __init__(
        self, url: str = URL, timeout: float = 90.0, gateway: Optional[subprocess.Popen[str]] = None
    ) -> None:
        self._url = url.rstrip("/")
        self._gateway = gateway
        # A copy of this client in a forked process does not stop the gateway.
        self._process = os.getpid()
        self._timeout = timeout
        # The gateway of `here` needs none.
        self._token = token_for(url) if gateway is None else None
        # The gateway is on this machine, or at the end of a tunnel.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def call(self, routine: str, *args: Any, **kwargs: Any) -> Any:
        """Calls a routine with positional or named arguments, and returns its result.

        A direct call: within milliseconds, and stopped when this client does not wait for it any longer.
        """
        body = {"argument": argument(args, kwargs)}
        return result_of(self._ask("POST", f"/v1/routines/{quote(routine, safe='@')}/call", body)).value

    async def acall(self, routine: str, *args: Any, **kwargs: Any) -> Any:
        """Like `call`, for asyncio."""
        return await asyncio.to_thread(lambda: self.call(routine, *args, **kwargs))

    def map(
        self,
        routine: str,
        arguments: Iterable[Any],
        *,
        key: Optional[str] = None,
        reduce: Sequence[Reduction] = (),
        by: Optional[Union[Selector, Sequence[Selector]]] = None,
    ) -> Job:
        """Starts a job with one call for each argument, which is the only one of its call.

        Of a range with the step 1 within ±2^53, only the ends are sent. A job with the same key is not started a second
        time. `reduce` has the names of numbers for `Job.reduced`: sum, mean, min, max, argmin, argmax and count,
        {"topk": K}, {"bottomk": K} and {"histogram": {"from": X, "to": Y, "bins": N}}. With `by`, the name of an argument,
        its position, or a list of them, `Job.groups` has these numbers for each of its values.
        """
        if isinstance(arguments, range) and is_described(arguments):
            return self._submit(routine, document(arguments), key, reduce, by)
        return self._submit(routine, [[encode(value)] for value in arguments], key, reduce, by)

    def starmap(
        self,
        routine: str,
        arguments: Iterable[Any] | Space,
        *,
        key: Optional[str] = None,
        reduce: Sequence[Reduction] = (),
        by: Optional[Union[Selector, Sequence[Selector]]] = None,
    ) -> Job:
        """Starts a job in which each tuple or list has positional arguments, and each dict named ones.

        The arguments can be a space, such as `product(x=range(10**6), y=[0.1, 0.2])`.
        """
        return self._submit(routine, document(arguments), key, reduce, by)

    def search(self, routine: str, *args: Any, **kwargs: Any) -> Job:
        """Starts a search with positional or named arguments of its class."""
        job = self._ask("POST", "/v1/jobs", {"routine": routine, "argument": argument(args, kwargs)})
        return Job(self, job["job"])

    def put(self, name: str, content: str | os.PathLike[str] | bytes) -> Resource:
        """Uploads bytes, or a file at a path, as a resource. An earlier one with this name is replaced for new jobs."""
        path = f"/v1/resources/{quote(name, safe='')}"
        if isinstance(content, bytes):
            self._open("PUT", path, content).close()
        else:
            with open(content, "rb") as file:
                self._open("PUT", path, file).close()
        return Resource(name)

    def delete(self, name: str) -> None:
        """Deletes a resource with all its earlier contents. Jobs that still need them have failed calls."""
        self._open("DELETE", f"/v1/resources/{quote(name, safe='')}").close()

    def find(self, text: str = "", tag: Optional[str] = None) -> Iterator[dict[str, Any]]:
        """Yields the routines with all words of a text in their names, texts and tags, sorted by name and version."""
        query = {"q": text, **({} if tag is None else {"tag": tag})}
        while True:
            page = self._ask("GET", f"/v1/routines?{urlencode(query)}")
            yield from page["routines"]
            if page["next"] is None:
                return
            query["cursor"] = page["next"]

    def signature(self, routine: str) -> dict[str, Any]:
        """Returns the parameters, the schema of the result and the text of a routine."""
        return dict(self._ask("GET", f"/v1/routines/{quote(routine, safe='@')}"))

    def usage(self) -> list[dict[str, Any]]:
        """Returns the calls of each routine, their times in microseconds and their sizes in bytes."""
        return list(self._ask("GET", "/v1/usage")["usage"])

    def job(self, job: str) -> Job:
        """Returns a job that was started earlier or elsewhere."""
        return Job(self, job)

    def executor(self, **options: Any) -> Executor:
        """Returns an executor: `submit` and `map` take the name of a routine instead of a function."""
        from ._executor import Executor

        return Executor(self, **options)

    def _submit(
        self,
        routine: str,
        arguments: Any,
        key: Optional[str] = None,
        reduce: Sequence[Reduction] = (),
        by: Optional[Union[Selector, Sequence[Selector]]] = None,
    ) -> Job:
        headers = {"idempotency-key": key} if key else {}
        body = {"routine": routine, "arguments": arguments, **({"reduce": list(reduce)} if reduce else {})}
        if by is not None:
            body["by"] = by if isinstance(by, (str, int)) else list(by)
        job = self._ask("POST", "/v1/jobs", body, headers)
        return Job(self, job["job"])

    def _open(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] = {}) -> Any:
        is_content = method == "PUT"
        data = body if body is None or is_content else json.dumps(body, allow_nan=False).encode()
        request = urllib.request.Request(self._url + path, data, dict(headers), method=method)
        if method == "POST":
            request.add_header("content-type", "application/json")
        elif is_content and not isinstance(body, bytes):
            about = os.fstat(body.fileno())
            # The size of a pipe is unknown: it is sent in chunks.
            if stat.S_ISREG(about.st_mode):
                request.add_header("content-length", str(about.st_size))
        if self._token is not None:
            # Not sent to the target of a redirection.
            request.add_unredirected_header("authorization", f"Bearer {self._token}")
        try:
            return self._opener.open(request, timeout=self._timeout)
        except urllib.error.HTTPError as error:
            text = error.read().decode("utf-8", "replace")
            try:
                detail = json.loads(text)["detail"]
            except (ValueError, KeyError, TypeError):
                detail = text.strip()
            raise RequestError(error.code, detail) from None

    def _ask(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] = {}) -> Any:
        with self._open(method, path, body, headers) as answer:
            return json.load(answer, object_hook=special)

    def close(self) -> None:
        """Stops the gateway that `here` has started."""
        if self._gateway is not None and self._process == os.getpid():
            with self._gateway as gateway:
                gateway.terminate()
            self._gateway = None

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()


class Job:
    """A job of calls. Its id is enough to find it again."""

    def __init__(self, client: Client, job: str) -> None:
        self._client = client
        self.id = job

    def status(self) -> dict[str, Any]:
        """Returns the state, with the numbers of calls and of those that have ended."""
        return dict(self._client._ask("GET", self._path()))

    def progress(self, every: float = 1.0) -> Iterator[dict[str, Any]]:
        """Yields the state at intervals of seconds, and at last the state of the job that is over, at once if `every` is 1 or more.

        A display of the counts: `for state in job.progress(): print(state["ended"], "of", state["calls"])`.
        """
        status = self.status()
        while True:
            yield status
            if status["state"] in OVER:
                return
            wait = min(int(every), WAIT_SECONDS)
            time.sleep(0 if wait else every)
            status = self._waited(wait)

    def wait(self, timeout: Optional[float] = None) -> dict[str, Any]:
        """Waits until the job is over, and returns its state."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = WAIT_SECONDS if deadline is None else max(0, deadline - time.monotonic())
            wait = max(1, min(int(left), WAIT_SECONDS, int(self._client._timeout / 2)))
            status = self._waited(wait)
            if status["state"] in OVER:
                return status
            if deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"job {self.id} is {status['state']} after {timeout} s")

    def _waited(self, seconds: int) -> dict[str, Any]:
        return dict(self._client._ask("GET", f"{self._path()}?wait={seconds}"))

    def results(self) -> Iterator[Result]:
        """Waits until the job is over, and yields all results, sorted by index."""
        self._succeed()
        lines = self._client._open("GET", f"{self._path()}/results", None, {"accept": "application/x-ndjson"})
        with lines:
            for line in lines:
                yield result_of(json.loads(line, object_hook=special))

    def download(self, path: str | os.PathLike[str], format: str = "ndjson") -> None:
        """Waits until the job is over, and writes all results into a file.

        `ndjson` is a line of JSON for each result, and `csv` a table of scalars, or of objects of scalars.
        """
        self._succeed()
        answer = self._client._open("GET", f"{self._path()}/download?{urlencode({'format': format})}")
        with answer, open(path, "wb") as file:
            shutil.copyfileobj(answer, file)

    def found(self) -> dict[str, Any]:
        """Waits until a search is over, and returns its `counts` and the `best` solution with its cost, or None."""
        self._succeed()
        return dict(self._client._ask("GET", f"{self._path()}/results"))

    def reduced(self) -> dict[str, Any]:
        """Waits until the job is over, and returns the numbers that `reduce` has requested, by their names.

        Raises `JobError` if a call has failed, or the reducer: `results` has the results and the errors of the calls.
        """
        return dict(self._reduced().get("reduced", {}))

    def groups(self) -> list[dict[str, Any]]:
        """Waits until the job is over, and returns the numbers of each group, sorted by its arguments, which are in `by`.

        With `by="alpha"` an element is {"by": {"alpha": 0.1}, "mean": 2.5}. Raises `JobError` as `reduced`.
        """
        return list(self._reduced().get("groups", []))

    def _reduced(self) -> dict[str, Any]:
        status = self._succeed()
        failed = sum(status["tally"]["failed"].values())
        if failed:
            raise JobError(f"{failed} calls of job {self.id} have failed")
        if "reason" in status:
            raise JobError(f"job {self.id}: {status['reason']}")
        return status

    def _succeed(self) -> dict[str, Any]:
        status = self.wait()
        if status["state"] != "successful":
            raise JobError(f"job {self.id} is {status['state']}: {status.get('reason', '')}")
        return status

    def values(self) -> list[Any]:
        """Waits until the job is over, and returns the values. Raises the error of the first failed call."""
        return [result.value for result in self.results()]

    def cancel(self) -> None:
        """Cancels the job."""
        self._client._ask("POST", f"{self._path()}/cancel")

    def cancel_call(self, index: int) -> None:
        """Cancels one call, which ends with an error of the kind `cancelled`. The others continue."""
        self._client._ask("POST", f"{self._path()}/calls/{index}/cancel")

    def remove(self) -> dict[str, Any]:
        """Removes all data of the job, which is over. Returns the number of `objects`, their `bytes`, and those `left`."""
        return self._client._ask("DELETE", self._path())

    def rerun(self) -> Job:
        """Starts a job of the failed calls of this one, which is over. Their indices remain. It is started once."""
        return Job(self._client, self._client._ask("POST", f"{self._path()}/rerun")["job"])

    def _path(self) -> str:
        return f"/v1/jobs/{quote(self.id, safe='')}"

    def __repr__(self) -> str:
        return f"Job({self.id!r})"


def result_of(line: dict[str, Any]) -> Result:
    """Returns the result of a line of JSON."""
    error = line.get("error")
    failed = None if error is None else CallError(error["kind"], error["message"], error.get("trace", ""))
    return Result(line["index"], line.get("value"), failed)


def argument(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Returns the argument of a call."""
    if args and kwargs:
        raise TypeError("a call has positional or named arguments, not both")
    return encode(kwargs) if kwargs else [encode(value) for value in args]


def token_for(url: str) -> Optional[str]:
    """Returns the token for a gateway from the environment, which is sent over TLS or to this machine only."""
    token = os.environ.get("ROUTINES_TOKEN", "")
    file = os.environ.get("ROUTINES_TOKEN_FILE")
    if file:
        with open(file, encoding="ascii") as text:
            token = text.read()
    token = token.strip()
    if not token:
        return None
    parts = urlsplit(url)
    host = parts.hostname or ""
    try:
        is_here = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_here = host == "localhost"
    if parts.scheme != "https" and not is_here:
        raise ValueError(f"the token is not sent to {url}, which others could read: use https, or unset ROUTINES_TOKEN")
    return token


def connect(url: str = URL, timeout: float = 90.0) -> Client:
    """Returns a client of the gateway at this address. Each request may take `timeout` seconds.

    A token is in the variable ROUTINES_TOKEN, or in the file of the variable ROUTINES_TOKEN_FILE.
    """
    return Client(url, timeout)


def here(*options: str, timeout: float = 90.0) -> Client:
    """Returns a client of this machine, without a server: it starts `routines gateway`, and stops it when it is closed,
    or when the program exits or is killed.

    The packages are in the store of the variable ROUTINES_STORE. Options are those of the command, such as "--workers", "2".
    """
    command = ["routines", "gateway", "--listen", "127.0.0.1:0", "--until-eof", *options]
    environment = {name: value for name, value in os.environ.items() if name != "TASKWORK_ZK"}
    # Its standard input ends with this process. In a session of its own, Ctrl-C interrupts only this process.
    gateway = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )
    try:
        assert gateway.stdout is not None
        with gateway.stdout as lines:
            line = lines.readline()
        if not line.startswith("serving "):
            raise RuntimeError(f"{' '.join(command)} has ended with {gateway.wait()}: see its message")
    except BaseException:
        with gateway:
            gateway.kill()
        raise
    client = Client(line.removeprefix("serving ").strip(), timeout, gateway)
    atexit.register(client.close)
    return client

"""Runs the routines of a package for a host: reads frames from one pipe and answers on another.

A frame is `u32 length, u32 JSON length, JSON, bytes`, little endian. Each call is answered once, by a `result` or an
`error`. Standard output and standard error are the log, so routines may print. Python 3.9 or later, no dependencies.

A search, or a function with checkpoints, reads the first byte of a mapped page in its loop. When it is set, the shim sends
the state.
"""

import base64
import collections
import copy
import importlib
import json
import math
import operator
import os
import platform
import struct
import sys
import threading
import time
import traceback

VERSION = 1
FRAME_BYTES_MAX = 64 << 20
# Room for the rest of a message around a value.
VALUE_BYTES_MAX = FRAME_BYTES_MAX - 1024
DEPTH_MAX = 100
INTEGER_MAX = 1 << 53
FLUSH_SECONDS = 0.01
FLUSH_BYTES = 1 << 20
STATE_BYTES_MAX = 1 << 20
SOLUTION_BYTES_MAX = 64 << 10
NAMES_MAX = 1000
# Requests in the first byte of the page: 1 and 2 to a search, 3 also to a function, 4 to a function.
BOUND, SPLIT, PAUSE = 1, 2, 3
# The time that a search runs before it is split again, so that it advances however often parts are requested.
SPLIT_SECONDS = 0.001

# The letters of `struct` for the numbers of arrays.
LETTERS = dict(zip("i8 i16 i32 i64 u8 u16 u32 u64 f32 f64".split(), "bhiqBHIQfd"))

# One for all values, since creating it takes longer than encoding a small one. `plain` returns no cycles.
ENCODER = json.JSONEncoder(check_circular=False, allow_nan=False, ensure_ascii=False, separators=(",", ":"))

# The process and the thread of the routine, the pipes, the answers and the state of the call, if it is a function.
running = []


class Invalid(Exception):
    """A value that is no argument or result."""


def plain(value, depth=0):
    """Converts a result to a value that `json` writes and every language reads alike."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return int(value) if -INTEGER_MAX <= value <= INTEGER_MAX else {"$i": str(int(value))}
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return {"$f": "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"}
    if depth >= DEPTH_MAX:
        raise Invalid(f"the result is nested more than {DEPTH_MAX} deep")
    if isinstance(value, (list, tuple)):
        return [plain(part, depth + 1) for part in value]
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise Invalid(f"a dict in the result has the key {key!r:.100}, which is no str")
        if len(value) == 1 and next(iter(value)).startswith("$"):
            raise Invalid("a dict with one key that starts with $ in the result is reserved")
        return {key: plain(part, depth + 1) for key, part in value.items()}
    array = packed(value)
    if array:
        return {"$a": array}
    if hasattr(value, "tolist"):
        # Scalars of numpy, and arrays of other elements.
        return plain(value.tolist(), depth + 1)
    raise Invalid(f"a {type(value).__name__} is no result: return None, bool, int, float, str, list, dict or array")


def packed(value):
    """Returns the parts of an array of numbers, of numpy, `array` or `memoryview`; None for other values."""
    try:
        view = None if isinstance(value, (bytes, bytearray)) else memoryview(value)
    except (TypeError, ValueError):
        return None
    letter = view.format if view is not None and view.ndim and len(view.format) == 1 else " "
    kind = "f" if letter in "fd" else "i" if letter in "bhilq" else "u" if letter in "BHILQ" else None
    if kind is None or sys.byteorder != "little":
        return None
    data = base64.b64encode(view.tobytes()).decode()
    return {"dtype": f"{kind}{8 * view.itemsize}", "shape": list(view.shape), "data": data}


def unpacked(array):
    """Returns an array of numpy, if that is installed, or else a `memoryview`."""
    try:
        letter, shape = LETTERS[array["dtype"]], array["shape"]
        data = bytearray(base64.b64decode(array["data"], validate=True))
        if min(shape, default=0) < 0:
            # numpy computes such a length.
            raise ValueError("a length is negative")
        try:
            import numpy
        except ImportError:
            # It has no shapes without elements.
            return memoryview(data).cast(letter, *([] if 0 in shape else [shape]))
        return numpy.frombuffer(data, "<" + letter).reshape(shape)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"an array is wrong: {error!r}") from None


def encode(value):
    """Returns a result as JSON in UTF-8."""
    try:
        encoded = ENCODER.encode(plain(value)).encode()
    except UnicodeEncodeError:
        raise Invalid("a str in the result has half of a surrogate pair, which is no character") from None
    if len(encoded) > VALUE_BYTES_MAX:
        raise Invalid(f"the result has {len(encoded)} bytes, more than {VALUE_BYTES_MAX}")
    return encoded


def special(value):
    """Converts a JSON object that stands for a number, an array, or the path of a file."""
    if len(value) == 1:
        if "$file" in value:
            return value["$file"]
        if "$i" in value:
            return int(str(value["$i"]))
        if "$f" in value:
            return float(str(value["$f"]))
        if "$a" in value:
            return unpacked(value["$a"])
    return value


# One for all messages, as `ENCODER`.
DECODER = json.JSONDecoder(object_hook=special)


def decode(argument):
    """Returns an argument with its special values."""
    try:
        return DECODER.decode(json.dumps(argument))
    except ValueError as error:
        raise Invalid(f"the argument is invalid: {error}") from None


class CallError(Exception):
    """A call has failed, as in the client."""

    def __init__(self, kind, message, trace=""):
        super().__init__(f"{message}\n\n{trace}" if trace else message)
        self.kind, self.message, self.trace = kind, message, trace


class Stopped(BaseException):
    """Ends a call that continues elsewhere from its state."""


class State:
    """The state of the running call."""

    def __init__(self, path):
        self.path, self.page = path, None
        self.begin(None, b"")

    def begin(self, call, restored):
        self.call, self.restored, self.is_stopped = call, restored, False

    def is_due(self):
        """Returns whether the state is requested. The first one of a process is, since the host learns by it."""
        if self.page is None:
            self.page = mapped(self.path)
            return True
        return self.page[0] != 0

    def save(self, state, pipes, answers):
        answers.flush()
        stops = self.page[0] == PAUSE
        if not stops:
            # Before the state is sent. The host repeats a request that is cleared here.
            self.page[0] = 0
        pipes.send(b'{"type":"checkpoint","id":%d}' % self.call, pickled(state, "the state of the call"))
        if stops:
            self.is_stopped = True
            raise Stopped


class Pipes:
    """The frames from and to the host."""

    def __init__(self):
        # Removed from the environment, so that routines do not write there by mistake.
        self.reads = open(os.environ.pop("ROUTINES_IN"), "rb")
        self.writes = os.open(os.environ.pop("ROUTINES_OUT"), os.O_WRONLY | os.O_CLOEXEC)
        # The bytes of the last frame.
        self.bytes = b""

    def receive(self):
        head = self.reads.read(8)
        if len(head) < 8:
            sys.exit(0)
        length, json_length = struct.unpack("<II", head)
        if not 4 <= length <= FRAME_BYTES_MAX or json_length > length - 4:
            sys.exit(f"the host has sent a frame of {length} bytes with JSON of {json_length} bytes")
        content = self.reads.read(length - 4)
        if len(content) < length - 4:
            sys.exit(0)
        text, self.bytes = content[:json_length], content[json_length:]
        try:
            return DECODER.decode(text.decode()), False
        except ValueError:
            # An argument is invalid: each is decoded by itself.
            return json.loads(text), True

    def send(self, message, data=b""):
        rest = memoryview(struct.pack("<II", len(message) + len(data) + 4, len(message)) + message + data)
        while rest:
            rest = rest[os.write(self.writes, rest) :]


class Answers:
    """Results that are sent together."""

    def __init__(self, pipes):
        self.pipes = pipes
        self.results = []
        self.bytes = 0
        self.sent = time.monotonic()

    def add(self, call, encoded):
        if self.bytes + len(encoded) > FLUSH_BYTES:
            self.flush()
        self.results.append(b"[%d,%b]" % (call, encoded))
        self.bytes += len(encoded)
        if time.monotonic() - self.sent > FLUSH_SECONDS:
            self.flush()

    def flush(self):
        if self.results:
            self.pipes.send(b'{"type":"result","values":[%b]}' % b",".join(self.results))
        self.results = []
        self.bytes = 0
        self.sent = time.monotonic()

    def fail(self, kind, message, trace="", call=None):
        self.flush()
        error = {"type": "error", "kind": kind, "message": clean(message[:4096]), "trace": clean(trace[-65536:])}
        if call is not None:
            error["id"] = call
        self.pipes.send(json.dumps(error).encode())


def clean(text):
    """Replaces halves of surrogate pairs, which are no characters."""
    return text.encode("utf-8", "replace").decode()


def trace_of(error):
    """Returns the traceback of an exception without the frames of this file."""
    frames = error.__traceback__
    while frames and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    return "".join(traceback.format_exception(type(error), error, frames))


def message_of(error):
    if isinstance(error, call_error()):
        return error.message
    message = "".join(traceback.format_exception_only(type(error), error)).strip()
    if isinstance(error, PermissionError) and "ROUTINES_ISOLATED" in os.environ:
        message += ": routines are isolated: --read, --write and --network grant files and ports"
    return message


class Search:
    """A part of a search tree, with the methods `search(cx)` and `split()`. Its attributes are pickled."""

    def but(self, **changes):
        """Returns a copy with other values of attributes."""
        other = copy.copy(self)
        other.__dict__.update(changes)
        return other


class Context:
    """The job of a running search: `asked[0]`, `bound[0]`, `count[name]` and `offer`."""

    def __init__(self, pipes, path):
        self._pipes = pipes
        self._page = mapped(path)
        self.asked = self._page[:1]
        # A list: reading it is faster than the page, and the host never writes a half of it.
        self.bound = [math.inf]
        self.count = collections.defaultdict(int)

    def _read_bound(self):
        while self._page[16:24] != self._page[8:16]:
            pass
        self.bound[0] = min(self.bound[0], struct.unpack("=d", self._page[8:16])[0])

    def _counts(self):
        """Returns the new numbers in JSON."""
        if len(self.count) > NAMES_MAX:
            raise Invalid(f"cx.count has {len(self.count)} names, more than {NAMES_MAX}")
        counts = {str(name): operator.index(number) for name, number in self.count.items()}
        if any(abs(number) > INTEGER_MAX for number in counts.values()):
            raise Invalid("a number in cx.count exceeds 2^53: add less at a time")
        self.count.clear()
        return json.dumps(counts).encode()

    def offer(self, cost, solution):
        """Offers a solution. Returns whether its cost is less than that of the best known one."""
        cost = float(cost)
        if not math.isfinite(cost):
            raise ValueError(f"the cost of a solution is {cost}, which is not finite")
        if cost >= self.bound[0]:
            return False
        encoded = encode(solution)
        if len(encoded) > SOLUTION_BYTES_MAX:
            raise ValueError(f"the solution has {len(encoded)} bytes as JSON, more than {SOLUTION_BYTES_MAX}")
        self._pipes.send(b'{"type":"offer","cost":%b,"solution":%b}' % (repr(cost).encode(), encoded))
        self.bound[0] = cost
        return True


def mapped(path):
    """Returns the page, which only searches and functions with checkpoints need."""
    import mmap

    with open(path, "r+b") as page:
        return memoryview(mmap.mmap(page.fileno(), 24))


def pickled(value, name):
    import pickle

    try:
        state = pickle.dumps(value, 5)
    except Exception as error:
        raise Invalid(f"{name} cannot be pickled: {message_of(error)}") from None
    if len(state) > STATE_BYTES_MAX:
        raise Invalid(
            f"{name} has {len(state)} bytes when pickled, more than {STATE_BYTES_MAX}: keep large data in files"
        )
    return state


def run_search(search, cx, pipes):
    """Searches until all is done, or the host has sent another message than `go`, which is returned."""
    since = time.monotonic()
    while True:
        cx._read_bound()
        search.search(cx)
        asked = cx.asked[0]
        if not asked:
            pipes.send(b'{"type":"result","counts":%b}' % cx._counts())
            return None
        if asked == BOUND or (asked == SPLIT and time.monotonic() - since < SPLIT_SECONDS):
            # Before the bound is read. The host repeats a request that is cleared here.
            cx.asked[0] = 0
            continue
        part = search.split() if asked == SPLIT else None
        rest = pickled(search, "the state of the search")
        if part is None:
            pipes.send(b'{"type":"paused","counts":%b}' % cx._counts(), rest)
        else:
            part = pickled(part, "the state of the search")
            pipes.send(b'{"type":"child","part":%d,"counts":%b}' % (len(part), cx._counts()), part + rest)
        message = pipes.receive()
        if message[0]["type"] != "go":
            return message
        since = time.monotonic()


def start_search(routine, argument, is_encoded, page, pipes, answers):
    """Runs a search from its state or its argument. Returns the message that has replaced it, if there is one."""
    try:
        if pipes.bytes:
            import pickle

            search = pickle.loads(pipes.bytes)
        else:
            search = apply(routine, decode(argument) if is_encoded else argument)
        return run_search(search, Context(pipes, page), pipes)
    except Invalid as error:
        answers.fail("invalid", str(error))
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        answers.fail("user", message_of(error), trace_of(error))


def call_error():
    """Returns the class of the client, if the routine has imported that."""
    return getattr(sys.modules.get("routines"), "CallError", CallError)


def here():
    """Returns the process and the thread: a forked child has the same thread, and would take answers of the host."""
    return os.getpid(), threading.get_ident()


def running_here(function):
    if not running or here() != running[0]:
        raise RuntimeError(
            f"routines.{function} works in the process and in the thread of a running routine that is a function"
        )
    return running[1:]


def routines_checkpoint(state):
    """Offers a state from which the running call can continue, in case it is interrupted here or later."""
    pipes, answers, its = running_here("checkpoint")
    if its.is_due():
        its.save(state, pipes, answers)


def routines_restored(default=None):
    """Returns the state from which the running call continues, or the default if it starts."""
    restored = running_here("restored")[2].restored
    if not restored:
        return default
    import pickle

    return pickle.loads(restored)


def routines_call(routine, *args, **kwargs):
    """Calls another routine from a running one, and returns its result."""
    if args and kwargs:
        raise TypeError("a call has positional or named arguments, not both")
    pipes, answers, _ = running_here("call")
    answers.flush()
    argument = encode(kwargs or args)
    pipes.send(b'{"type":"call","routine":%b,"argument":%b}' % (json.dumps(str(routine)).encode(), argument))
    answer, is_encoded = pipes.receive()
    if "error" in answer:
        error = answer["error"]
        raise call_error()(error["kind"], error["message"], error.get("trace", ""))
    return decode(answer["value"]) if is_encoded else answer["value"]


def load(folder, entry, kind):
    """Returns the function or the class of a package."""
    module, _, name = entry.partition(":")
    sys.path.insert(0, folder)
    from importlib.util import find_spec

    # Unless the client is installed, which has the same classes.
    if find_spec("routines") is None:
        sys.modules["routines"] = stub = type(sys)("routines")
        stub.Search, stub.CallError, stub.call = Search, CallError, routines_call
        stub.checkpoint, stub.restored = routines_checkpoint, routines_restored
    routine = importlib.import_module(module)
    for part in name.split("."):
        routine = getattr(routine, part)
    is_search = isinstance(routine, type) and hasattr(routine, "search") and hasattr(routine, "split")
    if kind == "search" and not is_search:
        raise TypeError(f"{entry} is not a class with the methods search and split")
    if not callable(routine):
        raise TypeError(f"{entry} is not a function")
    return routine


def apply(routine, argument):
    """Makes a call: a list has positional arguments, a dict named ones, and any other value is the only argument."""
    if isinstance(argument, list):
        return routine(*argument)
    if isinstance(argument, dict):
        return routine(**argument)
    return routine(argument)


def run(routine, call, argument, answers, is_encoded, state, restored):
    """Makes a call and answers it. Returns whether it was stopped instead."""
    state.begin(call, restored)
    try:
        encoded = encode(apply(routine, decode(argument) if is_encoded else argument))
    except Invalid as error:
        answers.fail("invalid", str(error), call=call)
    except (Exception, SystemExit, KeyboardInterrupt, Stopped) as error:
        if state.is_stopped:
            # Also if the routine has replaced the exception.
            return True
        answers.fail("user", message_of(error), trace_of(error), call)
    else:
        answers.add(call, encoded)
    return False


def run_all(routine, calls, answers, is_encoded, state, pipes):
    """Makes calls until one is stopped."""
    # A single call may continue from its state. Later frames replace the bytes.
    restored = pipes.bytes
    stopped = any(run(routine, *call, answers, is_encoded, state, restored) for call in calls)
    answers.flush()
    if stopped:
        pipes.send(b'{"type":"stopped"}')


def main():
    pipes = Pipes()
    answers = Answers(pipes)
    page = os.environ.pop("ROUTINES_PAGE")
    state = State(page)
    routine = following = None
    while True:
        (message, is_encoded), following = following or pipes.receive(), None
        kind = message["type"]
        if kind == "hello":
            if VERSION not in message["versions"]:
                sys.exit(f"the host speaks versions {message['versions']} of the protocol, this shim {VERSION}")
            ready = {"type": "ready", "version": VERSION, "language": f"python {platform.python_version()}"}
            pipes.send(json.dumps(ready).encode())
        elif kind == "load":
            try:
                routine = load(message["folder"], message["entry"], message["kind"])
            except (Exception, SystemExit) as error:
                answers.fail("user", message_of(error), trace_of(error))
            else:
                running[:] = (here(), pipes, answers, state) if message["kind"] == "function" else ()
                pipes.send(b'{"type":"ready"}')
        elif kind in ("call", "many"):
            calls = message["calls"] if kind == "many" else [(message["id"], message["argument"])]
            run_all(routine, calls, answers, is_encoded, state, pipes)
        elif kind == "search":
            argument = message.get("argument")
            following = start_search(routine, argument, is_encoded, page, pipes, answers)
        else:
            sys.exit(f"the host has sent the unknown message {kind!r:.100}")


if __name__ == "__main__":
    main()

"""The measured routines."""

import ctypes
import os
import time

import routines

PARTS, STEPS = 100, 10**9
LOOPS = 100_000


def empty(_):
    return None


def nested(calls):
    """The durations of empty calls that this call makes on its node, in microseconds."""
    times = []
    for _ in range(calls):
        start = time.perf_counter_ns()
        routines.call("empty@1.0", 0)
        times.append((time.perf_counter_ns() - start) / 1e3)
    return times


def pi(part):
    """A part of the integral of 4 / (1 + x^2) from 0 to 1, in C."""
    library = ctypes.CDLL(os.path.join(os.path.dirname(os.path.abspath(__file__)), "pi.so"))
    library.part.restype = ctypes.c_double
    return library.part(ctypes.c_long(part), ctypes.c_long(PARTS), ctypes.c_long(STEPS))


class Polls(routines.Search):
    """Runs an empty loop with polls and one without, alternately."""

    def __init__(self, rounds):
        self.rounds = rounds

    def search(self, cx):
        asked = cx.asked
        while self.rounds:
            start, left = time.perf_counter_ns(), LOOPS
            while left:
                left -= 1
            middle, left = time.perf_counter_ns(), LOOPS
            while left and not asked[0]:
                left -= 1
            if left:
                return
            cx.count["with"] += time.perf_counter_ns() - middle
            cx.count["without"] += middle - start
            cx.count["polls"] += LOOPS
            self.rounds -= 1

    def split(self):
        return None

"""The routines that `routines conform` calls. A package for another language has the same ones in the module `conform`."""

import array
import os
import sys
import time

import routines


def echo(value):
    return value


def doubled(values):
    return array.array("d", [2 * value for value in values])


def pair(first, second=2):
    return [first, second]


def fails(number):
    if number < 0:
        raise ValueError(f"the number {number}")
    return number


def invalid(value):
    return object()


def large(size):
    return "x" * size


def prints(size):
    print("to standard output " * (size // 19))
    print("to standard error", file=sys.stderr)
    return size


def process():
    return os.getpid()


def calls(routine, argument):
    return routines.call(routine, argument)


def caught(routine, argument):
    try:
        return routines.call(routine, argument)
    except routines.CallError as error:
        return [error.kind, bool(error.message)]


def adds(last, hold=-1, size=0):
    """Sums the numbers below `last`, and counts its restarts. Without one, it waits at the number `hold` for its stop."""
    number, total, restarts, _ = routines.restored((0, 0, -1, ""))
    restarts += 1
    while number < last:
        routines.checkpoint((number, total, restarts, "x" * size))
        if number == hold and not restarts:
            time.sleep(0.0001)
            continue
        total += number
        number += 1
    return [total, restarts]


class Count(routines.Search):
    """Counts `left` states, and adds the bound for each, if there is one. With `hold` states left, it waits until it is asked
    for something. With -1, it waits at its end, and its state is empty in languages in which states are bytes."""

    def __init__(self, left, hold=0, cost=None):
        self.left, self.hold, self.cost = left, hold, cost

    def search(self, cx):
        while self.left > 0:
            if self.left == self.hold:
                self.hold = 0
                # A shim need not split a search that has only started.
                time.sleep(0.01)
                while not cx.asked[0]:
                    time.sleep(0.0001)
            if cx.asked[0]:
                return
            self.left -= 1
            cx.count["states"] += 1
            if cx.bound[0] != float("inf"):
                cx.count["bound"] += int(cx.bound[0])
        if self.hold < 0:
            self.hold = 0
            while not cx.asked[0]:
                time.sleep(0.0001)
            return
        if self.cost is not None:
            cx.offer(self.cost, {"cost": self.cost})
            self.cost = None

    def split(self):
        if self.left < 2:
            return None
        give = self.left // 2
        self.left -= give
        return self.but(left=give)

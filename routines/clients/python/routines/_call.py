"""Functions for routines while they run on a node."""

from __future__ import annotations

import sys
from typing import Any


def _of_node(name: str) -> Any:
    return getattr(sys.modules["__main__"], name, None)


def call(routine: str, *args: Any, **kwargs: Any) -> Any:
    """Calls another routine from a running one, and returns its result. Raises `CallError` if it fails."""
    nested = _of_node("routines_call")
    if nested is None:
        raise RuntimeError("routines.call works in a running routine: elsewhere use routines.connect().call")
    return nested(routine, *args, **kwargs)


def checkpoint(state: Any) -> None:
    """Offers a state from which the running call can continue, in case it is interrupted here or later.

    The state is pickled when it is due, at most 1 MiB. Outside of a node this does nothing.
    """
    of_node = _of_node("routines_checkpoint")
    if of_node is not None:
        of_node(state)


def restored(default: Any = None) -> Any:
    """Returns the state from which the running call continues, or the default if it starts."""
    of_node = _of_node("routines_restored")
    return default if of_node is None else of_node(default)

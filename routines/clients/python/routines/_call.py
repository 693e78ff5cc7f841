"""Calls that a routine makes while it runs on a node."""

from __future__ import annotations

import sys
from typing import Any


def call(routine: str, *args: Any, **kwargs: Any) -> Any:
    """Calls another routine from a running one, and returns its result. Raises `CallError` if it fails."""
    nested = getattr(sys.modules["__main__"], "routines_call", None)
    if nested is None:
        raise RuntimeError("routines.call works in a running routine: elsewhere use routines.connect().call")
    return nested(routine, *args, **kwargs)

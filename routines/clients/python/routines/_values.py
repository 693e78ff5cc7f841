"""Values as every language reads them: integers beyond 2^53, NaN and infinities are objects with one key."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

INTEGER_MAX = 1 << 53


@dataclass(frozen=True)
class Resource:
    """A file that was uploaded by `put`. As a part of an argument, the routine gets the path of a local copy."""

    name: str


def encode(value: Any) -> Any:
    """Converts an argument to a value that `json` writes."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, Resource):
        return {"$resource": value.name}
    if isinstance(value, int):
        return int(value) if -INTEGER_MAX <= value <= INTEGER_MAX else {"$i": str(int(value))}
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return {"$f": "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"}
    if isinstance(value, (list, tuple)):
        return [encode(part) for part in value]
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"a dict has the key {key!r:.100}, which is no str")
        if len(value) == 1 and next(iter(value)).startswith("$"):
            raise TypeError("a dict with one key that starts with $ is reserved")
        return {key: encode(part) for key, part in value.items()}
    if hasattr(value, "tolist"):
        # Arrays and scalars of numpy.
        return encode(value.tolist())
    raise TypeError(f"a {type(value).__name__} is no value: pass None, bool, int, float, str, list or dict")


def special(value: dict[str, Any]) -> Any:
    """Converts a JSON object that stands for a number."""
    if len(value) == 1:
        if "$i" in value:
            return int(value["$i"])
        if "$f" in value:
            return float(value["$f"])
    return value

"""Values as every language reads them: integers beyond 2^53, NaN, infinities and arrays are objects with one key."""

from __future__ import annotations

import base64
import math
import sys
from dataclasses import dataclass
from typing import Any

INTEGER_MAX = 1 << 53
# The letters of `struct` for the numbers of arrays.
LETTERS = dict(zip("i8 i16 i32 i64 u8 u16 u32 u64 f32 f64".split(), "bhiqBHIQfd"))


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
    array = packed(value)
    if array:
        return {"$a": array}
    if hasattr(value, "tolist"):
        # Scalars of numpy, and arrays of other elements.
        return encode(value.tolist())
    raise TypeError(f"a {type(value).__name__} is no value: pass None, bool, int, float, str, list, dict or array")


def packed(value: Any) -> dict[str, Any] | None:
    """Returns the parts of an array of numbers, of numpy, `array` or `memoryview`; None for other values."""
    try:
        view = None if isinstance(value, (bytes, bytearray)) else memoryview(value)
    except (TypeError, ValueError):
        return None
    letter = view.format if view is not None and view.ndim and len(view.format) == 1 else " "
    kind = "f" if letter in "fd" else "i" if letter in "bhilq" else "u" if letter in "BHILQ" else None
    if view is None or kind is None or sys.byteorder != "little":
        return None
    data = base64.b64encode(view.tobytes()).decode()
    return {"dtype": f"{kind}{8 * view.itemsize}", "shape": list(view.shape), "data": data}


def unpacked(array: dict[str, Any]) -> Any:
    """Returns an array of numpy, if that is installed, or else a `memoryview`."""
    letter, shape = LETTERS[array["dtype"]], array["shape"]
    data = bytearray(base64.b64decode(array["data"], validate=True))
    try:
        import numpy
    except ImportError:
        # It has no shapes without elements.
        view: Any = memoryview(data)
        return view.cast(letter, *([] if 0 in shape else [shape]))
    return numpy.frombuffer(data, "<" + letter).reshape(shape)


def special(value: dict[str, Any]) -> Any:
    """Converts a JSON object that stands for a number or an array."""
    if len(value) == 1:
        if "$i" in value:
            return int(value["$i"])
        if "$f" in value:
            return float(value["$f"])
        if "$a" in value:
            return unpacked(value["$a"])
    return value

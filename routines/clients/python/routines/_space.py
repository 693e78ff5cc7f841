"""Parameter spaces of jobs, which are sent as descriptions of their axes instead of all their points."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Iterable

from ._values import INTEGER_MAX, Resource, encode


@dataclass(frozen=True)
class Space:
    """The arguments of the calls of a job, for `Client.starmap`. An axis of another space can be one, too."""

    document: Any


def product(*axes: Any, **named: Any) -> Space:
    """Returns all combinations of the values of axes, as positional or named arguments; the last axis changes fastest.

    An axis is an iterable of values or a space. Of a range with the step 1 within ±2^53, only the ends are sent; others are
    sent as lists.
    """
    return Space({"product": _axes(axes, named)})


def zipped(*axes: Any, **named: Any) -> Space:
    """Returns the values of axes with the same index, as positional or named arguments."""
    return Space({"zip": _axes(axes, named)})


def lines(resource: Resource) -> Space:
    """Returns the lines of an uploaded file, each of which is a value in JSON."""
    return Space({"file": resource.name})


def _axes(axes: tuple[Any, ...], named: dict[str, Any]) -> Any:
    if axes and named:
        raise TypeError("a space has positional or named axes, not both")
    return {name: document(axis) for name, axis in named.items()} if named else [document(axis) for axis in axes]


def document(values: Iterable[Any] | Space) -> Any:
    """Returns the description of an axis, or of all arguments."""
    if isinstance(values, Space):
        return values.document
    if isinstance(values, range) and is_described(values):
        return {"range": [values.start, max(values.start, values.stop)]}
    return [encode(value) for value in values]


def is_described(values: range) -> bool:
    """Returns whether only the ends of a range are sent; others are sent as lists."""
    return values.step == 1 and -INTEGER_MAX <= values.start and max(values.start, values.stop) <= INTEGER_MAX

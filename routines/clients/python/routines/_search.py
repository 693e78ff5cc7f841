"""The base class of tree searches in packages."""

from __future__ import annotations

import copy
from typing import Any, TypeVar

S = TypeVar("S", bound="Search")


class Search:
    """A part of a search tree, with the methods `search(cx)` and `split()`. Its attributes are pickled."""

    def but(self: S, **changes: Any) -> S:
        """Returns a copy with other values of attributes."""
        other = copy.copy(self)
        other.__dict__.update(changes)
        return other

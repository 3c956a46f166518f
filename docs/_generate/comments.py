"""What the fields of a class are for, from the comments behind them."""

from __future__ import annotations

import inspect
import re

_COMMENTED = re.compile(r"^    (\w+)(?::| =)[^#\n]*  # (.*)$", re.MULTILINE)


def comments_of(owner: type) -> dict[str, str]:
    """Return the comments behind the fields of a class, or behind the members of an enumeration."""
    return dict(_COMMENTED.findall(inspect.getsource(owner)))

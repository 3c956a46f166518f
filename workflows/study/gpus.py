"""What a training wants of GPUs, in the words of HTCondor's `require_gpus`, which is asked of each by itself."""

from __future__ import annotations

import re
from dataclasses import dataclass

_BOUND = r"{0}>=|<=|==|>|<)? *{0}[0-9]{{1,2}}(?:\.[0-9])?)"
_ONE, _SAME = _BOUND.format("("), _BOUND.format("(?:")
BOUNDS = f" *{_SAME}( *, *{_SAME})* *"


@dataclass(frozen=True, slots=True)
class GpuWish:
    """How many GPUs, and what each must be."""

    fewest: int
    most: int
    each: str = ""  # clauses of `require_gpus`

    def require(self, also: str) -> str:
        """Return `require_gpus` where a study says something of its own there, too.

        >>> GpuWish(1, 1, "Capability >= 8.0").require('DeviceName == "a" || ECCEnabled')
        'Capability >= 8.0 && (DeviceName == "a" || ECCEnabled)'
        """
        return f"{self.each} && ({also})" if self.each and also else self.each or also


def require_capability(bounds: str) -> str:
    """Return bounds of the compute capability, as BOUNDS has them; a number alone is the least.

    >>> require_capability("7.5, < 10")
    'Capability >= 7.5 && Capability < 10.0'
    """
    if not re.fullmatch(BOUNDS, bounds):
        raise ValueError
    return " && ".join(f"Capability {sign or '>='} {float(number):.1f}" for sign, number in re.findall(_ONE, bounds))


def require_memory(size: int) -> str:
    """Return a least memory, in bytes; HTCondor has it in MB.

    >>> require_memory(40 << 30)
    'GlobalMemoryMb >= 40960'
    """
    return f"GlobalMemoryMb >= {-(-size >> 20)}"


def require_runtime(version: str) -> str:
    """Return the least version of CUDA that the driver knows, counted as CUDA does: 12.4 is 12040.

    >>> require_runtime("12.4")
    'MaxSupportedVersion >= 12040'
    """
    found = re.fullmatch(r"([0-9]{1,2})\.([0-9]{1,2})", version)
    if not found:
        raise ValueError
    return f"MaxSupportedVersion >= {1000 * int(found[1]) + 10 * int(found[2])}"

"""Which processor figures are of: models of virtual machines are often called by their maker alone."""

from __future__ import annotations

import re
from pathlib import Path

CPU_INFO = Path("/proc/cpuinfo")
WIDEST = {"amx_bf16": "amx", "avx512f": "avx512", "avx2": "avx2"}  # the first that there is says how fast products are
ZEN = {"25": "zen4", "26": "zen5"}  # AMD's families with AVX-512, which Zen 5 alone does in one go


def name_processor(text: str | None = None) -> str:
    """Return maker and widest instructions, or AMD's generation that has them: what is part of a result file's name.

    Such as `intel-amx`, `amd-zen5` and `amd-avx2`.
    """
    facts = _facts(text)
    maker = {"GenuineIntel": "intel", "AuthenticAMD": "amd"}.get(facts.get("vendor_id", ""), "other")
    flags = facts.get("flags", "").split()
    widest = next((name for flag, name in WIDEST.items() if flag in flags), "narrow")
    generation = ZEN.get(facts.get("cpu family", "")) if (maker, widest) == ("amd", "avx512") else None
    return f"{maker}-{generation or widest}"


def describe_processor(text: str | None = None) -> str:
    """Return the model with its family and number, which tell generations apart."""
    facts = _facts(text)
    numbers = [f"{name} {facts[key]}" for name, key in (("family", "cpu family"), ("model", "model")) if key in facts]
    return f"{facts.get('model name', '?')}{' ' * bool(numbers)}{' '.join(numbers)}"


def _facts(text: str | None) -> dict[str, str]:
    """Return what is said of the first processor."""
    said = CPU_INFO.read_text(encoding="utf-8") if text is None else text
    lines = re.findall(r"^([\w ]+?)\s*:[ \t]*(.*)$", said.split("\n\n", 1)[0], re.MULTILINE)
    return {name: value.strip() for name, value in lines}

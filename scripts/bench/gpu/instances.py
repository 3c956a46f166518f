"""EC2's instances with GPUs: what these are assumed to reach, and what a training pays for its share of them. Pure.

Rates are three quarters of NVIDIA's data sheets, in float32, as those of nnlib/inspection/scaling.py, which has the
A10G and the H100. GPUs without NVLink are assumed to copy through host memory.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from nnlib.inspection.scaling import MACHINES, Machine
from regiondag.accounting.prices import PriceTable


@dataclass(frozen=True, slots=True)
class Gpu:
    """The GPU of a family of instances; `pattern` finds it in the name that its driver gives it."""

    machine: Machine
    pattern: str

    @property
    def name(self) -> str:
        """The name without what links it."""
        return self.machine.name.partition(",")[0]


# On paper: T4 8.1 TFLOP/s, 320 GB/s, PCI 3; L4 30.3, 300, PCI 4; L40S 91.6, 864, PCI 4; V100 15.7, 900, NVLink 150 GB/s
# each way; A100 19.5, 1,555, NVLink 300.
GPUS = {
    "g4dn": Gpu(Machine("T4", 6.1e12, 240e9, 5e9, 50e-6), r"\bT4\b"),
    "g5": Gpu(MACHINES[3], r"\bA10G\b"),
    "g6": Gpu(Machine("L4", 22.7e12, 225e9, 10e9, 50e-6), r"\bL4\b"),
    "g6e": Gpu(Machine("L40S", 68.7e12, 648e9, 10e9, 50e-6), r"\bL40S\b"),
    "p3": Gpu(Machine("V100", 11.8e12, 675e9, 110e9, 15e-6), r"\bV100-SXM2-16GB\b"),
    "p4d": Gpu(Machine("A100", 14.6e12, 1.17e12, 225e9, 15e-6), r"\bA100-SXM4-40GB\b"),
    "p5": Gpu(MACHINES[0], r"\bH100 80GB HBM3\b"),
}


@dataclass(frozen=True, slots=True)
class Share:
    """So many GPUs of an instance, and what an hour of them costs."""

    instance: str
    gpus: int
    of: int
    on_demand: float
    spot: float


def cheapest_share(prices: PriceTable, family: str, gpus: int) -> Share | None:
    """Return the cheapest way to `gpus` GPUs of one machine; None where no instance of the family has so many.

    A share costs what it does in `regiondag stats`: the machine's price by GPUs, the others being busy as well.
    """
    fits = [
        Share(kind, gpus, price.gpus, price.on_demand * gpus / price.gpus, price.spot * gpus / price.gpus)
        for kind, price in prices.instances.items()
        if kind.partition(".")[0] == family and price.gpus >= gpus
    ]
    return min(fits, key=lambda share: (share.on_demand, share.of, share.instance), default=None)


def family_of(gpu: str) -> str | None:
    """Return the family whose GPU has this name, such as "NVIDIA A10G"; None where no family has it."""
    return next((family for family, known in GPUS.items() if re.search(known.pattern, gpu)), None)

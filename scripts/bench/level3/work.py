"""The work of one rank, ours or PyTorch's, and the commands that it answers. Imports nothing that one side lacks."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from scripts.bench.common.pictures import PICTURES
from scripts.bench.common.workload import AUTOENCODER, Work

SPARSE = "sparse"  # a wide sparse input that leads to ten classes, as in the benchmark `wide`; else AUTOENCODER
SAVE, EVALUATE = "save", "evaluate"  # commands beside STEP
ITEMS, EXAMPLES, NONE = "items", "examples", "none"  # settings of `parallel`
DDP, WIDE_DDP, FSDP = "DDP", "DDP, one bucket", "FSDP"  # PyTorch's ways
CPU, GPU = "cpu", "gpu"


@dataclass(frozen=True)
class Ranked(Work):
    """What one of `ranks` processes does; all of them together train on `batch` examples a step."""

    kind: str = AUTOENCODER
    batches: int = 8
    parallel: str = ITEMS
    way: str = ""  # PyTorch's
    device: str = CPU
    rank: int = 0
    ranks: int = 1
    meeting: str = ""  # the file by which ranks find each other: memory of all ranks, or PyTorch's store
    kept: str = ""  # the folder into which SAVE writes

    @property
    def exchanged(self) -> int:
        """Bytes that a rank sends in a step by items: two sums of (batch, hidden) float32.

        Each goes out once in slices and once, added, as this rank's slice to all: 2 (R - 1) / R of it.
        """
        slice_size = -(-self.batch * self.hidden // self.ranks)
        return (2 if self.kind == AUTOENCODER else 1) * 2 * (self.ranks - 1) * slice_size * 4

    @property
    def shape(self) -> str:
        """The units of all layers, or the name of a network of images, and the batch."""
        if self.kind in PICTURES:
            return f"{self.kind}, batch {self.batch}"
        if self.kind == SPARSE:
            return f"{self.items:,}-{self.hidden}-10, batch {self.batch}"
        return f"{self.items:,}-{self.hidden:,}x3-{self.items:,}, batch {self.batch}"


def read(text: str) -> Ranked:
    """Return what `Work.arguments` wrote."""
    return Ranked(**json.loads(text))


def split(work: Ranked, ranks: int, meeting: str) -> list[Ranked]:
    """Return the work of each rank."""
    return [replace(work, rank=rank, ranks=ranks, meeting=meeting) for rank in range(ranks)]

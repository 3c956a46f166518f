"""How fast pictures become data files, and these the changed batches of a training, beside PyTorch's DataLoader."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from scripts.bench.common.environments import images_python
from scripts.bench.common.harness import Bench, Row, main
from scripts.bench.common.processes import Measured, measure, module

BENCH = "images"
CHANGES = {
    "crop and flip": {"Crop": 4, "Flip": True},
    "crop, flip, colour": {"Crop": 4, "Flip": True, "Colour": 0.3},
    "crop, flip, colour, mixup": {"Crop": 4, "Flip": True, "Colour": 0.3, "Mixup": 0.2},
}


@dataclass(frozen=True)
class Sizes:
    """All sizes and numbers of repeats."""

    files: int = 1500  # JPEGs of 640 x 480
    pictures: int = 8000  # of 64 x 64 in memory
    epochs: int = 3
    repeats: int = 3
    cores: int = 2


QUICK = Sizes(files=60, pictures=300, epochs=1, repeats=1)


class Images(Bench[Sizes]):
    """The rows."""

    def imports(self) -> Iterator[Row]:
        """Files become bytes of one size."""
        source, cores = self.area / "pictures", str(self.sizes.cores)
        measure(module("images.ours", "generate", source, str(self.sizes.files)))
        ours = module("images.ours", "decode", source, self.area / "out", cores)
        peers = {
            draft: module("images.peer", "decode", source, draft, cores, python=images_python())
            for draft in ("whole", "draft")
        }
        runs: dict[str, list[Measured]] = {"ours": [], "whole": [], "draft": []}
        for _ in range(self.sizes.repeats):
            runs["ours"].append(self._run(ours))
            for draft, argv in peers.items():
                runs[draft].append(measure(argv))
        for draft, what in (("whole", ""), ("draft", ", the peer scaling in the decoder, too")):
            name = f"import of {self.sizes.files:,} JPEGs of 640 x 480{what}"
            (own, own_wall), (cpu, wall) = _own_time(runs["ours"]), _own_time(runs[draft])
            yield Row(f"{name}: processor time", own, cpu, "s", goal=cpu)
            yield Row(f"{name}: wall time", own_wall, wall, "s")

    def epochs(self) -> Iterator[Row]:
        """Bytes in memory become batches, changed by chance."""
        for name, how in CHANGES.items():
            words = json.dumps(
                {"how": how, **{key: getattr(self.sizes, key) for key in ("pictures", "epochs", "cores")}}
            )
            runs = {
                side: [
                    _cpu(measure(module(f"images.{side}", "epochs", words, python=python)))
                    for _ in range(self.sizes.repeats)
                ]
                for side, python in (("ours", sys.executable), ("peer", images_python()))
            }
            ours, peer = (sorted(found)[len(found) // 2] for found in runs.values())
            rate = f"an epoch of {self.sizes.pictures:,} pictures of 64 x 64, {name}: processor time"
            yield Row(rate, ours, peer, "s", goal=peer)

    def _run(self, argv: list[str | Path]) -> Measured:
        try:
            return measure(argv)
        finally:
            shutil.rmtree(self.area / "out", ignore_errors=True)


def _cpu(run: Measured) -> float:
    return float(json.loads(run.output)["cpu"])


def _own_time(runs: list[Measured]) -> tuple[float, float]:
    """Return the processor and wall time that a side measured itself, without the modules that it imports."""
    found = [json.loads(run.output) for run in runs]
    cpu, wall = (sorted(float(one[key]) for one in found) for key in ("cpu", "wall"))
    return cpu[len(cpu) // 2], wall[len(wall) // 2]


if __name__ == "__main__":
    sys.exit(main(BENCH, Images, Sizes(), QUICK))

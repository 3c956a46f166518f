"""Networks of torchvision through ONNX and back: what differs from ONNX Runtime, and what import and export take.

Weights are random, as are the statistics of batch normalization, so that nothing is hidden by zeros and ones.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from scripts.bench.common.environments import torchvision_python
from scripts.bench.common.harness import Bench, Row, main
from scripts.bench.common.processes import Measured, measure, module

BENCH = "onnx"
GOAL = 1e-4  # of the largest output
SMALL = "made"  # a small residual network that needs no torch


@dataclass(frozen=True)
class Sizes:
    """Which networks, of which exporters."""

    networks: tuple[str, ...]
    exporters: tuple[str, ...]


FULL = Sizes(
    ("resnet18", "resnet34", "resnet50", "vgg16", "mobilenet_v2", "efficientnet_b0"), ("torchscript", "kept", "dynamo")
)


class Through(Bench[Sizes]):
    """The rows."""

    def networks(self) -> Iterator[Row]:
        """Each network by each exporter; seconds and memory are those of the first one's graph."""
        for network in self.sizes.networks:
            yield from self._rows(network)

    def _rows(self, network: str) -> Iterator[Row]:
        told = []
        for exporter in self.sizes.exporters:
            graph = self.area / f"{network}-{exporter}.onnx"
            if network == SMALL:
                measure(module("onnx.made", graph))
            else:
                measure(module("onnx.torch_side", network, exporter, graph, python=torchvision_python()))
            model, again = self.area / "body.nc", self.area / "again.onnx"
            taken = [_nnlib("import-onnx", graph, model), _nnlib("export-onnx", model, again)]
            told.append((taken, json.loads(measure(module("onnx.compare", graph, model, again)).output)))
            for path in self.area.glob(f"{graph.stem}*"):
                path.unlink()
            model.with_suffix(".json").unlink()  # the next import is of another graph
        for what, key in (("imported", "ours"), ("exported again", "again")):
            found = [one[key] for _, one in told]
            seen = ", ".join(f"{name} {one:.1e}" for name, one in zip(self.sizes.exporters, found, strict=True))
            yield Row(f"{network}, {what}: largest difference", max(found) * 1e6, None, "millionths", GOAL * 1e6, seen)
        for what, done in zip(("import", "export"), told[0][0], strict=True):
            yield Row(f"{network}, {what}", done.seconds, None, "s")
            yield Row(f"{network}, {what}: peak memory", done.peak_mb, None, "MB")


def _nnlib(command: str, source: Path, out: Path) -> Measured:
    return measure([sys.executable, "-m", "nnlib", command, source, "--out", out])


if __name__ == "__main__":
    sys.exit(main(BENCH, Through, FULL, Sizes((SMALL,), ("by hand",))))

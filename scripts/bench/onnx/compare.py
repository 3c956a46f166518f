"""What three say of the same images: python -m scripts.bench.onnx.compare GRAPH MODEL AGAIN."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime

from nnlib.cpu.forward import Forward
from nnlib.model.file import read_model

IMAGES = 2


def compare(graph: Path, model: Path, again: Path) -> dict[str, float]:
    """Return the largest differences from what ONNX Runtime says of `graph`, by its largest output."""
    network = read_model(model).network
    *sizes, channels = network.spec.layers[0].dimensions
    shape = (IMAGES, channels, *reversed(sizes))
    images = np.random.default_rng(7).standard_normal(shape).astype(np.float32)
    wanted = _ask(graph, images)
    flat = images.reshape(IMAGES, -1)
    found = Forward(network).activations({0: flat}, len(network.spec.layers) - 1)
    scale = float(np.abs(wanted).max())
    return {
        name: float(np.abs(one - wanted).max()) / scale
        for name, one in (("ours", found), ("again", _ask(again, images)))
    }


def _ask(graph: Path, images: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(str(graph), providers=["CPUExecutionProvider"])
    [name] = [one.name for one in session.get_inputs()]
    return np.asarray(session.run(None, {name: images})[0])


if __name__ == "__main__":
    print(json.dumps(compare(*map(Path, sys.argv[1:]))))

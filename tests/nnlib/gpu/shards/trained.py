"""A training on the GPUs of a machine, as a job does it: `python -m tests.nnlib.gpu.shards.trained PLAN RANKS`."""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import replace
from typing import Any

import numpy as np

from nnlib.contract import TrainSettings
from nnlib.model.examples import examples_of
from nnlib.parallel.opening import open_ranks
from nnlib.training import loop
from tests.nnlib.cpu import test_by_examples as dense
from tests.nnlib.samples import network_of
from tests.nnlib.shards.trained import NOISY, SETS

SETTINGS = TrainSettings(batch=20, epochs=2, learning_rate=0.01, clip=0.05, ema=0.9, seed=3)
CASES = {"items": (NOISY, SETS), "examples": (dense.PLAIN, dense.SETS)}


def main(plan: str, ranks: int) -> dict[str, Any]:
    """Train, and ask the network; return what must not depend on the number of ranks, floats to the last bit."""
    raw, sets = CASES[plan]
    network, settings = network_of(dict(raw), sets), replace(SETTINGS, parallel=plan)
    examples = examples_of(network.spec, sets, "d")
    losses: list[float] = []
    with open_ranks("gpu", 1, ranks) as (backend, _):
        found = loop.fit(network, examples, settings, backend, lambda epoch: losses.append(epoch.loss)).network
        evaluator = backend.evaluator(found)
        top = evaluator.top(examples.take(np.arange(4)), len(found.spec.layers) - 1, 7, None)
        losses.append(evaluator.mean_loss(examples))
    arrays = (*(array for _, array in found.arrays()), *top)
    digest = hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays))
    return {"sha256": digest.hexdigest(), "losses": losses}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]))))

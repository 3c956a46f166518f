"""What larger batches cost a network on the retail example, with the learning rate scaled and warmed up: NDCG@20.

    python -m scripts.bench.level3.quality

Several GPUs train at larger batches than one, so that speed says little without this. The learning rate is chosen on
the validation part at the usual batch with one seed, and then only scaled. Networks of other seeds are tested once;
differences to the usual batch with the same seed have 95 % intervals of Student's t. The goal: a mean that is lower
than the usual batch's by no more than another seed changes, its standard deviation.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from nnlib.contract import TrainSettings
from scripts.bench.common.harness import Bench, Row, main
from scripts.bench.quality.training import METRIC, QUICK, Sizes, Trainings, interval

BENCH = "level3_quality"
SEEDS = 8
USUAL_BATCH = TrainSettings().base_batch
MULTIPLES = (2, 4, 8)
# Of 5,853 customers: three updates an epoch at 2,048, so that more epochs may be needed, and more without a better one.
ALWAYS: Mapping[str, Any] = {"epochs": 150, "stop_after": 8}
# Epochs of warm-up: as many as Goyal et al. (2017) have, or none.
WAYS = (("sqrt", 0.0), ("sqrt", 5.0), ("linear", 5.0))


class Batches(Bench[Sizes]):
    """Larger batches beside the usual one."""

    def compare(self) -> Iterator[Row]:
        """Yield a row for each batch and each way to scale the rate, beside the usual batch."""
        trainings = Trainings(self.area, self.sizes)
        usual = {**ALWAYS, "learning_rate": trainings.best_rate(ALWAYS)}
        one, epoch = trainings.test(usual)
        noise, mean = float(np.std(one, ddof=1)), float(np.mean(one))
        note = f"learning rate {usual['learning_rate']:g}, {len(one)} seeds, deviation by seed {noise:.4f}"
        yield Row(f"{METRIC}, batch {USUAL_BATCH}: {note}, best epoch {epoch:.0f}", mean, None, "", higher=True)
        for scale, warmup in WAYS:
            for multiple in MULTIPLES:
                larger = {"batch": multiple * USUAL_BATCH, "scale_rate": scale, "warmup": warmup}
                values, epoch = trainings.test({**usual, **larger})
                low, middle, high = interval(np.array(values) - np.array(one))
                title = f"{METRIC}, {multiple}x the batch, scale_rate {scale}, warmup {warmup:g} (peer: 1x)"
                note = f"{middle:+.4f} [{low:+.4f}, {high:+.4f}], best epoch {epoch:.0f}"
                yield Row(f"{title}: {note}", float(np.mean(values)), mean, "", goal=mean - noise, higher=True)


if __name__ == "__main__":
    sys.exit(main(BENCH, Batches, Sizes(seeds=SEEDS), QUICK))

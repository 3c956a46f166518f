"""What a network loses when the factors of its products are rounded to bfloat16, on the retail example's test part.

    python -m scripts.bench.quality.precision

The same networks and learning rate as `quality.training` has for its default, each seed once in float32 and once in
bfloat16. The goal: the mean difference of pairs is less than what another seed changes, its standard deviation.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import numpy as np

from nnlib.cpu.products import has_amx, obstacle
from scripts.bench.common.harness import Bench, Row, main
from scripts.bench.common.processor import name_processor
from scripts.bench.quality.training import METRIC, QUICK, Sizes, Trainings, interval

BENCH = "precision"
SEEDS = 12


class Precision(Bench[Sizes]):
    """bfloat16 beside float32."""

    def compare(self) -> Iterator[Row]:
        """Yield the metric of each precision, and the difference beside what seeds change."""
        trainings = Trainings(self.area, self.sizes)
        settings = {"learning_rate": trainings.rate_for("default")}
        single, epoch = trainings.test(settings)
        rounded, rounded_epoch = trainings.test({**settings, "precision": "bf16"})
        low, middle, high = interval(np.array(rounded) - np.array(single))
        noise = float(np.std(single, ddof=1))
        by = "NumPy" if obstacle() else "oneMKL" if has_amx() else "AVX-512"
        title = f"{METRIC}, bf16 by {by} (peer: float32), {len(single)} seeds"
        epochs = f"best epochs {rounded_epoch:.1f} and {epoch:.1f}"
        yield Row(f"{title}, {epochs}", float(np.mean(rounded)), float(np.mean(single)), "", higher=True)
        title = f"{METRIC}, bf16 less float32 by pairs: {middle:+.5f} [{low:+.5f}, {high:+.5f}]"
        yield Row(f"{title} (peer: deviation by seed)", abs(middle), noise, "", goal=noise)


if __name__ == "__main__":
    sys.exit(main(f"{BENCH}-{name_processor()}", Precision, Sizes(seeds=SEEDS), QUICK))

"""What small cities of the example `images` gain: the share of test pictures whose sign is named, in percent points.

    python -m scripts.bench.images.quality

Every seed has pictures, parts and trainings of its own. Ours is the example's network, which starts from that of all
cities; beside it the same network from random weights, that of all cities as it is, and logistic regression on pixels
(scikit-learn, its C chosen on the validation part). Settings are the example's, in the middle of its search space; a
training's best epoch is chosen on the validation part. Values are means over the four small cities; differences have
95 % intervals of Student's t over seeds.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import nnlib
from nnlib.cli import main as nnlib_main
from nnlib.data.file import read_data
from nnlib.data.rows import Csr, Dense
from nnlib.spec.network import read_json
from scripts.bench.common.harness import Bench, Row, main
from scripts.bench.common.processes import REPOSITORY, NotMeasuredError
from scripts.bench.quality.training import interval

RESULTS = "images_quality"
EXAMPLE = REPOSITORY / "workflows/examples/images"
SMALL = ("lagos", "lima", "perth", "kyoto")
CITIES = (*SMALL, "oslo")
CHOSEN = {"body_rate": 0.5, "dropout": 0.1, "crop": 2}
SETTINGS: dict[str, Any] = {"learning_rate": 0.003, "schedule": "cosine", "threads": 2}
METRIC = "p@1"
INVERSES = (0.001, 0.01, 0.1)  # of the penalty of logistic regression
OURS, RANDOM, POOLED, LINEAR = "from all cities' network", "from random", "all cities' network", "regression on pixels"


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    seeds: int = 5
    scale: float = 1.0
    epochs: tuple[int, int] = (16, 20)  # of all cities together, of one


QUICK = Sizes(seeds=2, scale=0.2, epochs=(2, 2))


class Pictures:
    """The example's pictures of one seed, as data files."""

    def __init__(self, folder: Path, seed: int, sizes: Sizes) -> None:
        script = EXAMPLE / "make_pictures.py"
        command: list[str | Path] = [
            sys.executable,
            script,
            folder / "pictures",
            "--seed",
            str(seed),
            "--scale",
            str(sizes.scale),
        ]
        subprocess.run(command, check=True, capture_output=True)
        self.folder, self.seed, self.sizes = folder, seed, sizes
        with contextlib.redirect_stdout(sys.stderr):
            run = [str(folder / "pictures"), "--size", "32", "--test", "40%", "--seed", str(seed), "--quiet"]
            _run("import", *run, "--out", str(folder))
            for part in ("train", "valid"):
                files = [str(self.file(city, part)) for city in CITIES]
                _run("merge", *files, "--out", str(self.file("pooled", part)))

    def file(self, city: str, part: str) -> Path:
        """Return a data file."""
        return self.folder / f"{city}.{part}.nc"

    def train(self, city: str, batch: int, epochs: int, init: nnlib.Network | None = None) -> nnlib.Network:
        """Return the network of a city's best epoch."""
        network = nnlib.Network.from_json(read_json(EXAMPLE / "network.json"), CHOSEN)
        trainer = nnlib.Trainer(network, **SETTINGS, batch=batch, epochs=epochs, stop_after=0, seed=self.seed)
        valid = self.file(city, "valid")
        return trainer.fit(self.file(city, "train"), valid=valid, metric=METRIC, init=init)

    def values(self) -> dict[str, float]:
        """Return the share of right answers of each way, a mean over the small cities."""
        whole, one = self.sizes.epochs
        body = self.train("pooled", 32, whole)
        found: dict[str, list[float]] = {name: [] for name in (OURS, RANDOM, POOLED, LINEAR)}
        for city in SMALL:
            found[OURS].append(self.share(self.train(city, 16, one, body), city))
            found[RANDOM].append(self.share(self.train(city, 16, one), city))
            found[POOLED].append(self.share(body, city))
            found[LINEAR].append(self.regression(city))
        return {name: float(np.mean(values)) for name, values in found.items()}

    def share(self, network: nnlib.Network, city: str) -> float:
        """Return the share of a city's test pictures whose class a network names first."""
        named, _ = nnlib.Predictor(network).top_k(str(self.file(city, "test")), k=1)
        return float(np.mean(named[:, 0] == self.pixels(city, "test")[1]))

    def pixels(self, city: str, part: str) -> tuple[Any, Any]:
        """Return a part's pictures as floats, and the numbers of their classes."""
        pictures, classes = (data_set.rows for data_set in read_data(self.file(city, part)).sets)
        if not isinstance(pictures, Dense) or not isinstance(classes, Csr):
            raise NotMeasuredError("the data files hold no pictures")
        return pictures.floats(as_input=True), classes.indices

    def regression(self, city: str) -> float:
        """Return the share that logistic regression names, trained on the city's pixels."""
        from sklearn.linear_model import LogisticRegression

        (x, y), valid, test = (self.pixels(city, part) for part in ("train", "valid", "test"))
        fitted = [LogisticRegression(C=c, max_iter=1000).fit(x, y) for c in INVERSES]
        return float(max(fitted, key=lambda model: model.score(*valid)).score(*test))


def _run(*words: str) -> None:
    if code := nnlib_main(list(words)):
        raise NotMeasuredError(f"nnlib {words[0]} ended with {code}")


class Quality(Bench[Sizes]):
    """The rows of all seeds."""

    def ways(self) -> Iterator[Row]:
        """Yield our way beside each of the others."""
        found = []
        for seed in range(1, self.sizes.seeds + 1):
            folder = self.area / str(seed)
            folder.mkdir()
            found.append(Pictures(folder, seed, self.sizes).values())
        ours = np.array([one[OURS] for one in found])
        for name in (RANDOM, POOLED, LINEAR):
            peer = np.array([one[name] for one in found])
            low, middle, high = (100 * end for end in interval(ours - peer))
            title = f"right answers {OURS}, beside {name}: {middle:+.1f} points [{low:+.1f}, {high:+.1f}]"
            yield Row(title, float(ours.mean()), float(peer.mean()), "", goal=float(peer.mean()), higher=True)


if __name__ == "__main__":
    sys.exit(main(RESULTS, Quality, Sizes(), QUICK))

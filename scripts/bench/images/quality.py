"""What small cities of the example `images` gain: the share of test pictures whose sign is named, in percent points.

    python -m scripts.bench.images.quality

Every seed has pictures, parts and trainings of its own. Ours is the example's network, which starts from that of all
cities. Beside it stand the same network from random weights, that of all cities as it is, and logistic regression on
pixels in three ways: by the example's network (its last layer reads the picture), by the family that regions are held
against, as it is by default, and scikit-learn's, its C chosen on the validation part.
Settings are the example's, in the middle of its search space; a training has its best epoch by validation. Values are
means over the four small cities; differences have 95 % intervals of Student's t over seeds. The results' `cities` have
the same city by city.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import nnlib
from nnlib.cli import main as nnlib_main
from nnlib.contract import Recipe
from nnlib.data.events import Window
from nnlib.data.file import read_data
from nnlib.data.read_events import read_events, read_window
from nnlib.data.rows import Csr, Dense
from nnlib.families.fit import RecipeModel, fit_recipe
from nnlib.spec.network import read_json
from scripts.bench.common.harness import Bench, Row, main
from scripts.bench.common.processes import REPOSITORY, NotMeasuredError
from scripts.bench.quality.training import interval

RESULTS = "images_quality"
EXAMPLE = REPOSITORY / "workflows/examples/images"
SMALL = ("lagos", "lima", "perth", "kyoto")
CITIES = (*SMALL, "oslo")
CHOSEN = {"reads": "Largest", "body_rate": 0.5, "dropout": 0.1, "crop": 2}
PIXELS = {"reads": "Picture", "body_rate": 1.0, "dropout": 0.0, "crop": 0}
SETTINGS: dict[str, Any] = {"learning_rate": 0.003, "schedule": "cosine", "threads": 2}
METRIC = "p@1"
Figures = NDArray[np.float64]
INVERSES = (0.001, 0.01, 0.1)  # of the penalty of logistic regression
OURS, RANDOM, POOLED = "from all cities' network", "from random", "all cities' network"
TRIED, FLOOR = "the example's regression on pixels", "the family logistic"
LINEAR = "regression on pixels"
WAYS = (OURS, RANDOM, POOLED, TRIED, FLOOR, LINEAR)


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

    def train(
        self,
        city: str,
        batch: int,
        epochs: int,
        init: nnlib.Network | None = None,
        chosen: Mapping[str, Any] = CHOSEN,
    ) -> nnlib.Network:
        """Return the network of a city's best epoch."""
        network = nnlib.Network.from_json(read_json(EXAMPLE / "network.json"), chosen)
        trainer = nnlib.Trainer(network, **SETTINGS, batch=batch, epochs=epochs, stop_after=0, seed=self.seed)
        valid = self.file(city, "valid")
        return trainer.fit(self.file(city, "train"), valid=valid, metric=METRIC, init=init)

    def values(self) -> Figures:
        """Return the share of right answers, (ways, small cities)."""
        whole, one = self.sizes.epochs
        body = self.train("pooled", 32, whole)
        return np.array([self._ways(city, one, body) for city in SMALL]).T

    def _ways(self, city: str, epochs: int, body: nnlib.Network) -> list[float]:
        trained = (
            self.train(city, 16, epochs, body),
            self.train(city, 16, epochs),
            body,
            self.train(city, 16, epochs, body, PIXELS),
        )
        return [*(self.share(network, city) for network in trained), self.floor(city), self.regression(city)]

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

    def floor(self, city: str) -> float:
        """Return the share that the floor of such regions names, fitted to the city's pixels as its jobs do."""
        model = fit_recipe(Recipe("logistic"), read_events(self.file(city, "train"), inputs=True))
        return share_of(model, read_window(self.file(city, "test"), inputs=True))

    def regression(self, city: str) -> float:
        """Return the share that logistic regression names, trained on the city's pixels."""
        from sklearn.linear_model import LogisticRegression

        (x, y), valid, test = (self.pixels(city, part) for part in ("train", "valid", "test"))
        fitted = [LogisticRegression(C=c, max_iter=1000).fit(x, y) for c in INVERSES]
        return float(max(fitted, key=lambda model: model.score(*valid)).score(*test))


def share_of(model: RecipeModel, window: Window) -> float:
    """Return the share of a window's pictures whose class a fitted recipe names first."""
    named = model.scores(window.asked, np.arange(window.asked.customers)).argmax(axis=1)
    return float(np.mean(named == window.wanted.indices))


def _run(*words: str) -> None:
    if code := nnlib_main(list(words)):
        raise NotMeasuredError(f"nnlib {words[0]} ended with {code}")


class Quality(Bench[Sizes]):
    """The rows of all seeds."""

    def __init__(self, area: Path, sizes: Sizes) -> None:
        super().__init__(area, sizes)
        self.cities: dict[str, dict[str, dict[str, float | list[float]]]] = {}

    def ways(self) -> Iterator[Row]:
        """Yield our way beside each of the others."""
        kept = []
        for seed in range(1, self.sizes.seeds + 1):
            folder = self.area / str(seed)
            folder.mkdir()
            kept.append(Pictures(folder, seed, self.sizes).values())
        found = np.array(kept)  # (seeds, ways, small cities)
        self.cities = {city: _beside(found[:, :, n]) for n, city in enumerate(SMALL)}
        ours, *others = found.mean(axis=2).T
        for name, peer in zip(WAYS[1:], others, strict=True):
            low, middle, high = (100 * end for end in interval(ours - peer))
            title = f"right answers {OURS}, beside {name}: {middle:+.1f} points [{low:+.1f}, {high:+.1f}]"
            yield Row(title, float(ours.mean()), float(peer.mean()), "", goal=float(peer.mean()), higher=True)

    def details(self, rows: Sequence[Row]) -> Mapping[str, object]:  # noqa: ARG002
        """Return each city's shares, and what ours has more of, in points: lower end, mean and upper end."""
        return {"cities": self.cities}


def _beside(found: Figures) -> dict[str, dict[str, float | list[float]]]:
    """Return what ways reach in one city, and ours beside each, of shares (seeds, ways)."""
    return {
        name: {
            "right": round(float(found[:, n].mean()), 4),
            "ours_more": [round(100 * end, 1) for end in interval(found[:, 0] - found[:, n])],
        }
        for n, name in enumerate(WAYS)
    }


if __name__ == "__main__":
    sys.exit(main(RESULTS, Quality, Sizes(), QUICK))

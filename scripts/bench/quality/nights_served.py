"""What served on each night, and what recipes reach on the week after it: nothing of that week is known to any of them.

A recipe goes by its text, JSON with all hyperparameters in it.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nnlib.contract import Recipe, recipe_from_json, recipe_to_json, slug_of
from nnlib.data.events import Events, Window
from nnlib.data.merge import merge
from nnlib.data.read_events import read_events, read_window
from nnlib.families.blend import Blend
from nnlib.families.fit import RecipeModel, fit_recipe
from nnlib.families.legal import complete_recipe
from nnlib.families.measure import measure
from nnlib.families.model_file import read_recipe_model
from nnlib.importing.regions import import_purchases
from nnlib.importing.splits import Split
from nnlib.prediction.match_items import in_order_of
from nnlib.util import netcdf
from nnlib.util.days import show_day
from nnlib.util.threads import Each, workers
from regiondag.node.choice import read_decisions
from regiondag.run.champions import champion_of
from regiondag.run.layout import RunFolder
from regiondag.run.manifest import read_manifest
from regiondag.run.trial_recipes import EVER
from regiondag.study.families import FIRST
from regiondag.study.model import POOLED
from scripts.bench.common.processes import NotMeasuredError

METRICS = ("ndcg@20", "p@10")
OLD = "weights of the first night: "  # before the text of their recipe

Values = NDArray[np.float64]  # (metrics, customers)


def text_of(recipe: Recipe) -> str:
    """Return the text of a recipe; one that says its defaults and one that does not have the same."""
    return recipe_to_json(complete_recipe(recipe))


BESTSELLERS = text_of(EVER)


def first_recipes(family: str) -> list[str]:
    """Return what is tried first of a family."""
    return [text_of(Recipe(name, point)) for name, point in FIRST if name == family]


@dataclass(frozen=True)
class Served:
    """What a night left: by which recipe each region is served, and the files of the models."""

    common: str
    of: Mapping[str, str]  # slug of the region -> recipe; one that is new since then gets the common one
    models: Mapping[str, Path]  # recipe -> a model file
    reason: str  # of the common choice
    kinds: Mapping[str, int]  # how many regions are served by it, by the floor, by one of their own

    def recipe(self, region: str) -> str:
        """Return what serves a region."""
        return self.of.get(region, self.common)


def read_served(run: RunFolder, day: int) -> Served:
    """Return what serves after a night; NotMeasuredError unless it is whole and knows all days before `day`."""
    of: dict[str, str] = {}
    texts: dict[str, str] = {}  # digest of a model file -> its recipe
    models: dict[str, Path] = {}
    for slug in read_manifest(run).regions:
        champion = champion_of(run, slug)
        if champion is None:
            raise NotMeasuredError(f"{run.path}: {slug} has no champion, or a torn one")
        if champion.sha256 not in texts:
            model = read_recipe_model(champion.model)
            if model.fitted_until != day:
                raise NotMeasuredError(
                    f"{champion.model}: fitted until {show_day(model.fitted_until)}, not {show_day(day)}"
                )
            texts[champion.sha256] = text_of(model.recipe)
            models[texts[champion.sha256]] = champion.model
        of[slug] = texts[champion.sha256]
    decisions = read_decisions(run.region(POOLED))
    kinds = Counter(decision["kind"] for decision in decisions["regions"].values())
    return Served(of[POOLED], of, models, decisions["common"]["reason"], kinds)


@dataclass(frozen=True, eq=False)
class Week:
    """Customers of all regions with what they had before a night, and what they took for the first time after it."""

    window: Window
    customers: tuple[tuple[str, str], ...]  # slug of the region, name

    def measure(self, model: RecipeModel, each: Each) -> Values:
        """Return what each customer gets by a model, which may lack the week's new items."""
        found = measure(in_order_of(model, self.window.asked.items), self.window, METRICS, each)
        return np.array([found[name] for name in METRICS], np.float64)


def read_week(table: Path, folder: Path, days: int) -> Week:
    """Return the last days of a table, split as `nnlib import` does; its files go into `folder`."""
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        import_purchases(table, folder, today=0, split=Split(test=days))
    together = folder / "week.nc"
    merge(sorted(folder.glob("*.test.nc")), together)
    window = read_window(together)
    with netcdf.File(together) as file:
        names = file.strings("samples")
    slugs = list(map(slug_of, window.asked.regions))
    regions = (slugs[number] for number in window.asked.region.tolist())
    return Week(window, tuple(zip(regions, names, strict=True)))


class Fits:
    """Models of one history, of which blends share their members."""

    def __init__(self, history: Events) -> None:
        self.history = history
        self._known: dict[str, RecipeModel] = {}

    def model(self, recipe: Recipe) -> RecipeModel:
        """Return what `fit_recipe` would."""
        if recipe.members:
            members = tuple(self.model(member).fitted for member in recipe.members)
            past = self.history
            return RecipeModel(recipe, past.items, past.regions, past.as_of, Blend(members, recipe.weights))
        text = text_of(recipe)
        if text not in self._known:
            self._known[text] = fit_recipe(recipe, self.history)
        return self._known[text]


def measure_week(week: Week, history: Path, recipes: Iterable[str], served: Served, first: Served) -> dict[str, Values]:
    """Return what each recipe gives, fitted on `history` or as it served; and so do the first night's weights."""
    fit = Fits(read_events(history))
    with workers(os.cpu_count() or 1) as each:
        found = {}
        for text in sorted(recipes):
            file = served.models.get(text)
            found[text] = week.measure(read_recipe_model(file) if file else fit.model(recipe_from_json(text)), each)
        return found | {OLD + text: week.measure(read_recipe_model(file), each) for text, file in first.models.items()}


def serve(week: Week, values: Mapping[str, Values], recipe_of: Callable[[str], str]) -> Values:
    """Return what customers get when each region is served by the recipe that is its own."""
    texts = np.array([recipe_of(region) for region, _ in week.customers])
    found = np.full((len(METRICS), len(texts)), np.nan)
    for text in np.unique(texts):
        found[:, texts == text] = values[str(text)][:, texts == text]
    return found


def by_customer(values: NDArray[np.float64], customers: Sequence[tuple[str, str]]) -> NDArray[np.float64]:
    """Return a value for each customer, whose mean is that of `values`, one for each customer and week.

    Weeks of one customer are alike. So what an interval is made of is what each customer adds to the mean, over all of
    his weeks: the linearised ratio of the sums of values and weeks.
    """
    who: dict[tuple[str, str], int] = {}
    numbers = np.array([who.setdefault(customer, len(who)) for customer in customers])
    mean = values.mean()
    return np.asarray(mean + np.bincount(numbers, values - mean) * len(who) / len(values))

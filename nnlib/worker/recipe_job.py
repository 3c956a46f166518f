"""One job of a recipe from its files to its result: fit, find a blend's weights, measure every customer, save."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from nnlib.contract import (
    FLOOR_FILE,
    MODEL_FILE,
    SCORES_FILE,
    Recipe,
    Result,
    Role,
    Status,
    Trial,
    scored_metrics,
    sha256_of,
)
from nnlib.data.events import Events, Window
from nnlib.data.read_events import read_events, read_window
from nnlib.data.sets import say_mixed_repeats
from nnlib.errors import DataError, NnlibError
from nnlib.families.blend import Blend, K, cross_fit_weights
from nnlib.families.family import Fitted
from nnlib.families.fit import RecipeModel, fit_recipe, model_of, reads_inputs
from nnlib.families.measure import measure
from nnlib.families.model_file import write_recipe_model
from nnlib.spec.metric_names import canonical_metric, parse_metric
from nnlib.util.threads import Each, workers
from nnlib.worker.on_data import LIBRARIES, held_out_file
from nnlib.worker.scores import BASELINE, FLOOR, OfCustomers, count_customers, means_of, stderr_of, write_scores
from nnlib.worker.teller import Teller

SHOWN = ("p@5", "p@10", "p@20", "recall@20", "ndcg@5", "ndcg@10", "ndcg@20", "mrr@20")


def run_recipe(trial: Trial, folder: Path, threads: int = 1, teller: Teller | None = None) -> Result:
    """Fit what `trial` says on the files in `folder`, measure it, and return the result.

    A trial to tune is measured on the validation part; the final one on the test part, beside the recipes of
    `trial.compare`, and then fitted on all days, and so is the floor. Raises NnlibError, OSError and MemoryError.
    """
    assert trial.recipe is not None, "the caller has made sure"
    if trial.metric.minimize:
        raise NnlibError(f"trial.json: metric.name: {trial.metric.name} is not legal for families, legal: ndcg@20")
    teller = teller or Teller()
    with workers(threads) as each:
        inputs = any(map(reads_inputs, (trial.recipe, *trial.compare.values())))
        window = _read_window(trial, folder, inputs)
        history = _history(folder, trial.train_files, window, held_out_file(trial))
        teller.do(f"fitting {trial.recipe.family}")
        model, judged = _fit(trial.recipe, history, window, trial, each)
        found = [_measure(judged, window, trial, each, teller)]
        key, metrics = canonical_metric(trial.metric.name), means_of(found[0])
        result = Result(
            node=trial.node,
            status=Status.OK,
            metrics=metrics,
            value=metrics[key],
            stderr=stderr_of(found[0][key]),
            customers=count_customers(found[0][key]),
            recipe=model.recipe,
            fitted_until=history.as_of if history.days is not None else None,
            examples=history.customers,
            backend="numpy",
            versions=LIBRARIES,
        )
        if trial.role is Role.FINAL:
            teller.do("fitting what it is compared with")
            others = {name: fit_recipe(recipe, history) for name, recipe in sorted(trial.compare.items())}
            found += [_measure(other.fitted, window, trial, each, teller) for other in others.values()]
            compared = {name: means_of(values) for name, values in zip(others, found[1:], strict=True)}
            result = replace(result, compared=compared, baseline=compared.get(BASELINE, {}))
            teller.do(f"fitting {model.recipe.family} on all days")
            _write_models(trial, folder, model.recipe, inputs)
            result = replace(result, model=sha256_of(folder / MODEL_FILE), floor=sha256_of(folder / FLOOR_FILE))
    write_scores(folder / SCORES_FILE, found, trial.metric)
    return replace(result, scores=sha256_of(folder / SCORES_FILE))


def _read_window(trial: Trial, folder: Path, inputs: bool) -> Window:
    name = held_out_file(trial)
    window = read_window(folder / name, inputs)
    if not window.wanted.nonzeros:
        raise DataError(f"{name}: no customer has a target, so nothing can be measured")
    return window


def _history(folder: Path, files: Sequence[str], window: Window, held_out: str) -> Events:
    """Return what is learned from; DataError unless it ends where the window begins, of the file `held_out`."""
    history = _read_history(folder, files, "train_files", window.asked.inputs is not None)
    if history.items != window.asked.items:
        raise DataError(f"{', '.join(files)}: other items than those that are asked for; import both at once")
    if history.repeats != window.asked.repeats:
        raise DataError(say_mixed_repeats(", ".join(files), history.repeats, held_out))
    if history.days is not None and window.asked.days is not None and history.as_of > window.asked.as_of:
        raise DataError(
            f"{', '.join(files)}: goes on to day {history.as_of}, the window begins on {window.asked.as_of}: what is "
            "learned from would know what is asked; import both at once"
        )
    return history


def _read_history(folder: Path, files: Sequence[str], key: str, inputs: bool) -> Events:
    if len(files) != 1:
        raise NnlibError(f"trial.json: {key}: {list(files)!r:.80} is not legal for a recipe, legal: one data file")
    return read_events(folder / files[0], inputs)


def _fit(recipe: Recipe, history: Events, window: Window, trial: Trial, each: Each) -> tuple[RecipeModel, Fitted]:
    """Return the model of a recipe, and what it is judged by.

    A blend without weights gets those that are best on the window, and is judged by such as were found on others than
    the customer that is asked about: else it would win by the customers whom it was made for.
    """
    if not recipe.members or recipe.weights:
        model = fit_recipe(recipe, history)
        return model, model.fitted
    if trial.role is not Role.TUNE:
        raise NnlibError("trial.json: recipe: weights: none are not legal for the final training")
    members = [fit_recipe(member, history) for member in recipe.members]
    _, k = parse_metric(trial.metric.name)
    alone = [member.fitted for member in members]
    weights, judged = cross_fit_weights(alone, window, k or K, seed=recipe.seed, each=each)
    kept = [(member, weight) for member, weight in zip(members, weights, strict=True) if weight]
    recipe = replace(
        recipe, members=tuple(member.recipe for member, _ in kept), weights=tuple(weight for _, weight in kept)
    )
    fitted = Blend(tuple(member.fitted for member, _ in kept), recipe.weights)
    return model_of(recipe, history, fitted), judged


def _measure(model: Fitted, window: Window, trial: Trial, each: Each, teller: Teller) -> OfCustomers:
    names = dict.fromkeys((*SHOWN, *scored_metrics(trial.metric)))
    watch = teller.count("asking customers:", int(np.count_nonzero(np.diff(window.wanted.indptr))))
    return measure(model, window, tuple(names), each, watch)


def _write_models(trial: Trial, folder: Path, recipe: Recipe, inputs: bool) -> None:
    """Write what serves, and the floor, both fitted on all days."""
    history = _read_history(folder, trial.all_files, "all_files", inputs)
    for file, one in ((MODEL_FILE, recipe), (FLOOR_FILE, trial.compare[FLOOR])):
        write_recipe_model(folder / file, fit_recipe(one, history))

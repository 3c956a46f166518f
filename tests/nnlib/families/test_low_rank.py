"""What graph, elsa and ials promise alike: the same bits anywhere, files that hold the whole model, bounded memory."""

import tracemalloc

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from nnlib.families import family_of
from nnlib.families.family import Size
from tests.nnlib.families.few import few_events

NAMES = ("graph", "elsa", "ials")
EVENTS = few_events(300, 120)
ROWS = np.arange(EVENTS.customers)


def settings(name, **changes):
    small = {"graph": {"vectors": 16, "sharpen": 1.0}, "elsa": {"dims": 16, "epochs": 2}, "ials": {"dims": 16}}
    return {**family_of(name).DEFAULTS, **small[name], **changes}


@pytest.mark.parametrize("name", NAMES)
def test_bits_depend_on_the_seed_and_not_on_blas_threads(name):
    scores = []
    for threads, seed in ((1, 0), (8, 0), (1, 1)):
        with threadpool_limits(threads, user_api="blas"):
            scores.append(family_of(name).fit(EVENTS, settings(name), seed).scores(EVENTS, ROWS))
    assert scores[0].tobytes() == scores[1].tobytes() != scores[2].tobytes()


@pytest.mark.parametrize("name", NAMES)
def test_a_restored_model_gives_the_same_bits(name):
    family, hyperparameters = family_of(name), settings(name)
    model = family.fit(EVENTS, hyperparameters, 0)
    kept = {key: np.array(value) for key, value in model.arrays().items()}
    again = family.restore(kept, hyperparameters, EVENTS.regions)
    assert again.scores(EVENTS, ROWS).tobytes() == model.scores(EVENTS, ROWS).tobytes()


@pytest.mark.parametrize("name", NAMES)
def test_own_group_comes_first(name):
    history = EVENTS.aged(1e9).toarray() > 0
    longer = {"epochs": 30, "batch": 32} if name == "elsa" else {}
    scores = family_of(name).fit(EVENTS, settings(name, **longer), 0).scores(EVENTS, ROWS)
    scores[history] = -np.inf
    best = scores[:-1, :-1].argsort(axis=1)[:, ::-1][:, :10]
    assert (best % 2 == ROWS[:-1, None] % 2).mean() > 0.9


@pytest.mark.parametrize("name", NAMES)
def test_memory_stays_below_what_is_asked_for(name):
    events = few_events(2000, 1500, density=0.02)
    hyperparameters = {**family_of(name).DEFAULTS, **({"epochs": 1} if name == "elsa" else {})}
    size = Size(events.customers, len(events.items), events.bought.nonzeros)
    family_of(name).fit(EVENTS, settings(name), 0)  # loads the compiled loops, which are not counted
    tracemalloc.start()
    family_of(name).fit(events, hyperparameters, 0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    needed = family_of(name).bytes_needed(size, hyperparameters)
    assert needed / 4 < peak <= needed


@pytest.mark.parametrize("name", NAMES)
def test_arrays_of_another_size_or_type_are_refused(name):
    family, hyperparameters = family_of(name), settings(name)
    arrays = family.fit(EVENTS, hyperparameters, 0).arrays()
    for key, value in arrays.items():
        for wrong in (value.astype(np.float64), value[None], value[1:]):
            if wrong.dtype == value.dtype and wrong.ndim == value.ndim and len(arrays) == 1:
                continue  # a model of fewer items, which the file's reader finds
            with pytest.raises(ValueError, match="legal"):
                family.restore({**arrays, key: wrong}, hyperparameters, EVENTS.regions)
        with pytest.raises(KeyError):
            family.restore({one: kept for one, kept in arrays.items() if one != key}, hyperparameters, EVENTS.regions)

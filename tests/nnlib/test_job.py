"""Whole jobs on data whose inputs and targets are different units, in this process."""

import dataclasses

import numpy as np
import pytest
from nnlib_samples import clustered

from nnlib import job
from nnlib.contract import Role, trial_from_json
from nnlib.data import Csr, Data, DataSet
from nnlib.datafile import write_data


def with_inputs(data, change, names):
    """The same data with other inputs: unit numbers go through `change`."""
    rows = data.sets[0].rows
    indices = np.array([change(unit) for unit in rows.indices], np.int32)
    other = Csr(rows.indptr, indices, max(len(names), int(indices.max()) + 1))
    return Data((DataSet("input", other, names), data.sets[1]), region=data.region)


def run(trial_file, change=lambda unit: unit, names=()):
    folder = trial_file.parent
    for name, data in (("train.nc", clustered(64, 1, 9)), ("held.nc", clustered(32, 2, 6))):
        write_data(folder / name, with_inputs(data, change, names))
    trial = dataclasses.replace(trial_from_json(trial_file.read_text()), sha256={})
    return job.run(trial, folder)


PAGES = tuple(f"page{n}" for n in range(40))
WIDER = tuple(f"page{n}" for n in range(300))
ITEMS = tuple(f"item{n}" for n in range(40))


@pytest.mark.parametrize("names", [PAGES, WIDER])
def test_inputs_of_other_units_hide_no_target(make_trial, names):
    """The inputs are shifted by ten, so that masking them would mask another taste's items, or none there are."""
    result = run(make_trial(role=Role.FINAL), lambda unit: (unit + 10) % len(names), names)
    assert result.metrics["p@3"] > 0.1
    assert result.baseline["p@3"] > 0
    hidden = run(make_trial("other", role=Role.FINAL), lambda unit: (unit + 10) % 40, ITEMS)
    assert hidden.baseline != result.baseline


def test_narrower_inputs(make_trial):
    result = run(make_trial(role=Role.FINAL), lambda unit: unit // 10, ("a", "b", "c", "d"))
    assert result.metrics["p@3"] > 0.1


@pytest.mark.parametrize(
    ("inputs", "targets", "same"),
    [
        ((40, ITEMS), (40, ITEMS), True),
        ((40, ()), (40, ITEMS), True),
        ((40, ()), (40, ()), True),
        ((40, PAGES), (40, ITEMS), False),
        ((41, ()), (40, ()), False),
        ((4, ()), (40, ITEMS), False),
    ],
)
def test_what_are_the_same_units(inputs, targets, same):
    empty = np.zeros(1, np.int64), np.zeros(0, np.int32)
    (wide, names), (items, item_names) = inputs, targets
    assert job.Pairs("f", Csr(*empty, wide), Csr(*empty, items), names, item_names, "r").same_units is same

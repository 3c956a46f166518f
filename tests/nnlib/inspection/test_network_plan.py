"""What a training would take, from data that are there."""

import numpy as np
import pytest

from nnlib.contract import TrainSettings
from nnlib.devices import CPU
from nnlib.errors import DataError
from nnlib.inspection.network_plan import plan_network
from nnlib.model.examples import examples_of
from tests.nnlib.samples import network_of, random_matrix, sets_of

MATRIX = random_matrix(20, 30, 1)
SETS = sets_of(x=MATRIX, y=MATRIX)
INPUT, OUTPUT = {"Name": "I", "N": "auto", "DataSet": "x"}, {"Name": "O", "N": "auto", "DataSet": "y"}
SPEC = network_of({"Layers": [INPUT, {"Name": "H", "N": 4, "Activation": "Relu"}, OUTPUT]}, SETS).spec


def test_data_without_examples_are_refused():
    examples = examples_of(SPEC, SETS, "d.nc").take(np.arange(0))
    with pytest.raises(DataError, match=r"d\.nc: 0 examples are not legal, legal: 1 or more"):
        plan_network(SPEC, examples, TrainSettings(), 1, CPU)


def test_an_update_has_no_more_batches_than_an_epoch():
    examples = examples_of(SPEC, SETS, "d.nc")
    plans = [plan_network(SPEC, examples, TrainSettings(batch=5, accumulate=n), 1, CPU) for n in (4, 100)]
    assert plans[0].costs == plans[1].costs

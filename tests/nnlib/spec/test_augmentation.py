"""The key Augmentation of a network file: what it may say, and what each mistake is told as."""

import pytest

from nnlib.spec.network import SpecError, parse_network, substitute
from nnlib.spec.types import NO_AUGMENTATION, Augmentation

RAW = {"Layers": [{"N": [4, 4, 3], "DataSet": "x"}, {"N": 2, "DataSet": "y"}]}


def parse(**how):
    return parse_network(RAW | {"Augmentation": how}, "n.json").augmentation


def test_all_that_it_may_say():
    assert parse(crop=2, Flip=True, colour=0.4, Mixup=1) == Augmentation(2, True, 0.4, 1.0)
    assert parse() == parse_network(RAW, "n.json").augmentation == NO_AUGMENTATION


def test_hyperparameters_have_their_places():
    raw = RAW | {"Augmentation": {"Colour": "$colour", "Crop": "$crop"}}
    spec = parse_network(substitute(raw, {"colour": 0.1, "crop": 1}), "n.json")
    assert spec.augmentation == Augmentation(1, False, 0.1)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"Crop": 1.5}, "Augmentation.Crop: 1.5 is not legal, legal: a whole number from 0 to 4096"),
        ({"Crop": -1}, "Augmentation.Crop: -1 is not legal"),
        ({"Flip": 1}, "Augmentation.Flip: 1 is not legal, legal: true or false"),
        ({"Colour": 1.1}, r"Augmentation.Colour: 1.1 is not legal, legal: a number in \[0, 1\]"),
        ({"Mixup": -0.1}, "Augmentation.Mixup: -0.1 is not legal"),
        ({"Color": 0.1}, 'Augmentation.Color: unknown key, did you mean "Colour"'),
        ({"Mixup": "$alpha"}, 'has no value, give the hyperparameter "alpha" one'),
    ],
)
def test_mistakes(how, message):
    with pytest.raises(SpecError, match=message):
        parse(**how)

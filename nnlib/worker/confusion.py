"""What a network takes pictures for, in the part that it is tested on: the counts, and a few pictures made small."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnlib.confusion import MOST_CLASSES, MOST_EXAMPLES, MOST_NAME, MOST_PAIRS, MOST_SIDE, Confusion, Example
from nnlib.data.blockwise import collect, run_in_order
from nnlib.data.rows import Dense
from nnlib.data.sets import DataSet
from nnlib.engines import Evaluator
from nnlib.evaluation.metrics import choose_asked
from nnlib.ops.activations import activate
from nnlib.spec.types import Activation, LayerKind
from nnlib.training.validation import Validator
from nnlib.util.arrays import Floats, Longs

MOST_MISTAKES = 8  # of the examples


def find_confusion(ruler: Validator, evaluator: Evaluator) -> Confusion | None:
    """Return what pictures are taken for; None unless each is of one class that has a name, by a SoftMax."""
    ranked = ruler.ranked
    inputs = [ruler.part.sets[layer.data_set] for layer in ruler.spec.layers_of(LayerKind.INPUT)]
    pictures = next((one for one in inputs if not one.sparse and len(one.dimensions) == 3), None)
    if ranked is None or pictures is None:
        return None
    examples, layer = ranked.examples, ruler.spec.layers[ranked.output]
    names, wanted = examples.sets[ranked.output].features, ranked.wanted(np.arange(examples.count))
    if layer.activation is not Activation.SOFTMAX or not names or np.any(np.diff(wanted.indptr) != 1):
        return None

    def block(rows: Longs) -> dict[str, NDArray[Any]]:
        sums = evaluator.sums(examples.take(rows), ranked.output)
        best = sums.argmax(axis=1)
        return {"predicted": best, "sure": activate(layer, sums)[np.arange(len(rows)), best]}

    size = choose_asked(examples, ranked.output, evaluator.at_once)
    found = collect(run_in_order(block, examples.count, len(names), ruler.each, at_once=size))
    return _confuse(wanted.indices.astype(np.int64), found["predicted"], found["sure"], names, pictures)


def _confuse(actual: Longs, predicted: Longs, sure: Floats, names: tuple[str, ...], pictures: DataSet) -> Confusion:
    """Return the confusion of pictures whose classes are `actual` and were taken for `predicted`, all (n,)."""
    of, wrong, counts = len(names), actual != predicted, np.bincount(actual, minlength=len(names))
    joined, often = np.unique(actual[wrong] * of + predicted[wrong], return_counts=True)
    most = np.argsort(-often, kind="stable")[: None if of <= MOST_CLASSES else MOST_PAIRS]
    pairs = [(*divmod(int(joined[n]), of), int(often[n])) for n in most]
    told = range(of) if of <= MOST_CLASSES else sorted({number for pair in pairs for number in pair[:2]})
    place = {number: n for n, number in enumerate(told)}

    def surest(asked: Iterable[tuple[int, int]]) -> Iterator[int]:
        for one, other in asked:
            rows = np.flatnonzero((actual == one) & (predicted == other))
            if len(rows):
                yield int(rows[sure[rows].argmax()])

    mistakes = [(one, other) for one, other, _ in pairs[:MOST_MISTAKES]]
    right = [(one, one) for one in dict.fromkeys([*(pair[0] for pair in pairs), *told])]
    rows = list(islice(surest([*mistakes, *right]), MOST_EXAMPLES))
    said = [(place[int(actual[row])], place[int(predicted[row])], float(sure[row])) for row in rows]
    return Confusion(
        of,
        tuple(names[number][:MOST_NAME] for number in told),
        tuple(int(counts[number]) for number in told),
        tuple((place[one], place[other], count) for one, other, count in pairs),
        tuple(_shrink(pictures, rows, said)),
    )


def _shrink(pictures: DataSet, rows: Sequence[int], said: Sequence[tuple[int, int, float]]) -> Iterator[Example]:
    """Yield some pictures, made small, with what is said of them; none of such as are not of bytes in grey or colours.

    A pixel is the mean of those that it stands for.
    """
    width, height, channels = pictures.dimensions
    values = pictures.take(np.array(rows, np.int64)).rows
    if not isinstance(values, Dense) or values.values.dtype != np.uint8 or channels not in (1, 3):
        return
    longest = max(width, height, MOST_SIDE)
    for planes, one in zip(values.values.reshape(len(rows), channels, height, width), said, strict=True):
        small = planes.transpose(1, 2, 0)
        for axis, size in enumerate((height, width)):
            parts = np.array_split(small, max(1, size * MOST_SIDE // longest), axis)
            small = np.stack([part.mean(axis) for part in parts], axis)
        pixels = base64.b64encode(small.round().astype(np.uint8).tobytes()).decode()
        yield Example(*one, small.shape[1], small.shape[0], channels, pixels)

"""The model of several GPUs against figures that were worked out apart from it."""

from __future__ import annotations

import dataclasses

import pytest

from nnlib.inspection.scaling import (
    COUNTS,
    MACHINES,
    WORTH,
    Machine,
    Matrix,
    Work,
    most_worthwhile,
    predict_efficiency,
    step_seconds,
    work_of,
)
from tests.nnlib.samples import network_of, random_matrix, sets_of

# Items, hidden units, examples of a batch; an autoencoder with two hidden products, 134 entries an example, Adam.
# Efficiency of 2, 4, 8 GPUs on each of MACHINES, by a program of its own.
KNOWN = {
    (10_000, 128, 256): (".46 .26 .14", ".33 .18 .09", ".32 .17 .09", ".47 .29 .16"),
    (10_000, 1024, 256): (".73 .52 .32", ".61 .38 .22", ".56 .33 .18", ".71 .48 .29"),
    (27_278, 1024, 256): (".84 .68 .49", ".75 .55 .36", ".72 .49 .30", ".82 .63 .43"),
    (27_278, 1024, 1024): (".91 .78 .61", ".83 .64 .44", ".78 .55 .35", ".84 .65 .45"),
    (100_000, 512, 1024): (".97 .92 .84", ".93 .84 .71", ".91 .79 .63", ".94 .86 .73"),
    (1_000_000, 256, 1024): (".99 .99 .97", ".99 .98 .95", ".99 .97 .93", ".99 .98 .96"),
}


def autoencoder(n: int, h: int, b: int, cut: bool = True) -> Work:
    entries = 134.0 * b
    wide = Matrix(n, h, cut, True, entries, min(n, entries / 4)), Matrix(h, n, cut, output=True)
    if wide[0].rows == n:  # the other program had touched rows' costs there, too
        wide = dataclasses.replace(wide[0], rows=n - 1), wide[1]
    return Work((wide[0], Matrix(h, h), Matrix(h, h), wide[1]), b, states=2)


@pytest.mark.parametrize("sizes", KNOWN)
def test_efficiency(sizes):
    for machine, known in zip(MACHINES, KNOWN[sizes], strict=True):
        found = [predict_efficiency(machine, autoencoder(*sizes), count) for count in COUNTS]
        assert found == pytest.approx([float(text) for text in known.split()], abs=0.0051), machine.name


BY_EXAMPLES = {  # on the first two machines
    (10_000, 128, 256): (".32 .18 .09", ".13 .05 .02"),
    (10_000, 1024, 256): (".35 .20 .11", ".10 .04 .02"),
    (27_278, 1024, 1024): (".63 .42 .25", ".21 .08 .04"),
    (100_000, 512, 1024): (".70 .52 .35", ".30 .13 .06"),
    (1_000_000, 256, 1024): (".76 .64 .48", ".40 .20 .10"),
}


@pytest.mark.parametrize("sizes", BY_EXAMPLES)
def test_efficiency_by_examples(sizes):
    work = dataclasses.replace(autoencoder(*sizes), by_examples=True)
    for machine, known in zip(MACHINES[:2], BY_EXAMPLES[sizes], strict=True):
        # The other program left out the shards' gradients of narrow layers, and what each shard costs besides.
        seconds = [step_seconds(machine, work, count) - 8 // count * machine.floor for count in COUNTS]
        found = [step_seconds(machine, work) / (count * took) for count, took in zip(COUNTS, seconds, strict=True)]
        assert found == pytest.approx([float(text) for text in known.split()], abs=0.009), machine.name


def test_a_step_by_hand():
    """On a machine of 1 FLOP/s that moves bytes at once: products of 64 by 64 by 64, and an exchange each way."""
    machine = Machine("slow", 1.0, float("inf"), 4.0, 3.0, floor=7.0)
    work = Work((Matrix(64, 64, first=True), Matrix(64, 128, cut=True, output=True)), 64, states=0)
    assert step_seconds(machine, work) == 7 + 2 * 2 * 64**3 + 3 * 2 * 64 * 64 * 128
    assert step_seconds(machine, work, 2) == 7 + 2 * 2 * 64**3 + 3 * 2 * 64**3 + 2 * (3 + 4 * 64 * 64 / 2 / 4)
    assert predict_efficiency(machine, work, 1) == 1.0


def test_a_convolution_by_hand():
    """Kernels of 64 values to 64 maps, of 100 places, on a machine without an end of bandwidth, and on one of 1 B/s."""
    matrix, slow = Matrix(64, 64, first=True, places=100), Machine("slow", 1.0, float("inf"), 4.0, 3.0, floor=7.0)
    work = Work((matrix,), 64, states=0, by_examples=True, values=6400)
    assert step_seconds(slow, work) == 7 + 2 * 2 * 6400 * 64**2
    assert step_seconds(slow, work, 2) == 5 * 7 + 2 * 2 * 3200 * 64**2 + 2 * 4 * 64**2 / 2 / 4 + 2 * 3
    narrow = Machine("narrow", float("inf"), 1.0, float("inf"), 0.0, floor=0.0)
    product, passes = 4 * (2 * 6400 * 64 + 64**2), 4 * 6 * 64 * 6400
    assert step_seconds(narrow, work) == 2 * product + passes + 4 * 3 * 64**2


def test_statistics_of_batches_by_hand():
    """Two exchanges a layer, of two numbers a channel to each other GPU."""
    machine = Machine("slow", 1.0, float("inf"), 4.0, 3.0, floor=7.0)
    work = Work((Matrix(64, 64, first=True),), 64, states=0, by_examples=True)
    normed = dataclasses.replace(work, normalized=(16, 24))
    assert step_seconds(machine, normed) == step_seconds(machine, work)
    for ranks in COUNTS:
        more = 2 * 2 * 3 + 2 * 4 * 2 * (16 + 24) * (ranks - 1) / 4
        assert step_seconds(machine, normed, ranks) == pytest.approx(step_seconds(machine, work, ranks) + more)


def test_what_is_not_cut_gains_nothing():
    for count in COUNTS:
        assert predict_efficiency(MACHINES[0], autoencoder(27_278, 1024, 256, cut=False), count) == 1 / count
    assert most_worthwhile(MACHINES[0], autoencoder(27_278, 1024, 256, cut=False)) == 1


def test_as_many_gpus_as_are_worth_it():
    assert most_worthwhile(MACHINES[0], autoencoder(10_000, 128, 256)) == 1
    assert most_worthwhile(MACHINES[0], autoencoder(27_278, 1024, 256)) == 4
    assert most_worthwhile(MACHINES[0], autoencoder(1_000_000, 256, 1024)) == 8
    assert most_worthwhile(MACHINES[0], autoencoder(1_000_000, 256, 1024), (1, 2)) == 2
    assert WORTH == 0.5


def test_work_is_that_of_the_network():
    matrix = random_matrix(20, 30, 1)
    layers = [
        {"Name": "I", "N": "auto", "DataSet": "x"},
        {"Name": "H", "N": 4, "Activation": "Relu"},
        {"Name": "K", "N": 5, "Activation": "Relu"},
        {"Name": "O", "N": "auto", "DataSet": "y"},
    ]
    spec = network_of({"Layers": layers}, sets_of(x=matrix, y=matrix)).spec
    found = work_of(spec, 10, 1, {0, 3}, {0: (50.0, 20.0)}, {0})
    assert found == Work(
        (
            Matrix(30, 4, True, True, 50.0, 20.0),
            Matrix(4, 5),
            Matrix(5, 30, True, output=True),
        ),
        10,
        1,
    )
    assert work_of(spec, 10, 1, (), {0: (50.0, 20.0)}).matrices[0] == Matrix(30, 4, False, True, 50.0, 30.0)

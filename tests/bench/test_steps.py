"""What the rows of a step's parts have beside them."""

from __future__ import annotations

import pytest

from nnlib.cpu.products import has_amx, obstacle
from scripts.bench.common.workload import AUTOENCODER, IMAGES, Work, count_operations
from scripts.bench.cpu import steps

ALONE = steps.Parts(6.0, {"products": 4.0, "updates": 1.0}, {"operations": 3.0, "bytes": 0.25})
BOTH = steps.Parts(5.0, {"products": 4.5, "updates": 1.0}, {"operations": 3.0, "bytes": 0.25})


def test_the_operations_of_a_step_are_those_of_three_products_a_layer_but_for_the_first():
    small = Work(IMAGES, inside=2, batch=3)  # 784 x 2, 2 x 2, 2 x 10
    assert count_operations(small) == 2 * 3 * (2 * 784 * 2 + 3 * 2 * 2 + 3 * 2 * 10)
    assert count_operations(Work(IMAGES)) == 821_559_296
    wide = Work(AUTOENCODER, items=7, hidden=2, batch=1)
    assert count_operations(wide) == 2 * (2 * 14 + 3 * (4 + 4 + 14))


def test_products_and_updates_stand_beside_what_they_cannot_go_below(monkeypatch, tmp_path):
    monkeypatch.setattr(steps, "has_amx", lambda: False)
    monkeypatch.setattr(steps, "obstacle", lambda: "")
    monkeypatch.setattr(steps, "_parts", lambda work: ALONE if work.threads == 1 else BOTH)
    rows = list(steps.Steps(tmp_path, steps.FULL).parts())
    found = [(row.workload.partition("bf16, ")[2].partition(" (peer")[0], row.ours, row.peer) for row in rows]
    assert found == [
        ("1 thread: a step", 6.0, 3.0),
        ("1 thread: products", 4.0, 3.0),
        ("1 thread: updates", 1.0, 0.25),
        ("1 thread: the rest: activations, output layer, Python", 1.0, None),
        ("2 threads, wall time: a step", 5.0, 6.0),
        ("2 threads together: products", 4.5, 4.0),
        ("2 threads together: updates", 1.0, 1.0),
    ]
    assert "0.82 GFLOP" in rows[0].workload


@pytest.mark.skipif(bool(obstacle()) or has_amx(), reason="needs AVX-512's instructions for bfloat16, and no AMX")
def test_the_floor_is_of_the_work_that_is_asked_for():
    from scripts.bench.cpu.peak import least_by_bytes, least_by_operations

    assert least_by_operations(Work(IMAGES, batch=2)) > 0
    assert least_by_bytes(Work(IMAGES, inside=8)) > 0

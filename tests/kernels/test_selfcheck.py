"""The cases of the self-check: one for every kernel, and the kernels as they are pass them in the harness, too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from nnlib.gpu.kernels import read_signatures
from nnlib.gpu.runtime import SCALARS
from nnlib.gpu.selfcheck.case import Case
from nnlib.gpu.selfcheck.run import cases
from tests.kernels.host import run
from tests.kernels.library import family

CASES = list(cases())


def test_every_kernel_has_a_case():
    assert {case.kernel for case in CASES} == set(read_signatures())


def in_harness(case: Case) -> dict[str, Any]:
    """Launch with threads in three orders; return the arrays that may be written."""
    signature = read_signatures()[case.kernel]
    pairs = zip(signature.parameters, case.ordered, strict=True)
    values = [value if kind.endswith("*") else SCALARS[kind](value) for (_, kind), value in pairs]
    parameters = family(signature.family).kernel(case.kernel).parameters
    written = [one.name for one in parameters if one.pointer and not one.constant]
    return dict(zip(written, run(signature.family, case.kernel, case.grid, values), strict=True))


@pytest.mark.parametrize("case", CASES, ids=[f"{case.kernel}-{n}" for n, case in enumerate(CASES)])
def test_a_case_agrees(case):
    assert case.differences(in_harness(case)) == []
    given = {name: case.arguments[name] for name in case.wanted}
    assert case.differences(given), "a kernel that does nothing must be found"


def test_what_is_too_far_away_is_said_with_its_place():
    wanted = np.array([[1.0, 2], [3, np.nan]], np.float32)
    case = Case("set", (1,), {}, {"x": wanted}, {"x": 0.25})
    assert case.differences({"x": wanted + 0.25}) == []
    found = wanted.copy()
    found[1] = [9, 1]
    [difference] = case.differences({"x": found})
    assert (difference.count, difference.size, difference.place) == (2, 4, "1,1")
    [difference] = case.differences({"x": np.array([[1, 2], [np.inf, np.nan]], np.float32)})
    assert (difference.place, difference.found, difference.wanted) == ("1,0", np.inf, 3)

"""nnlib as any program on a real HTCondor pool, evicted on the way, beside the built-in one: values and bits."""

from __future__ import annotations

import zipfile

import pytest

from regiondag.run.journal import Journal
from regiondag.run.layout import NodeName
from tests.workflows.on_pool.test_eviction import evict, evictions
from tests.workflows.on_pool.test_study import finish, generate, submit
from tests.workflows.trainers.nnlib_as_program import AS_PROGRAM, BUILT_IN, add_program, make_slow

pytestmark = pytest.mark.condor

FIRST, FINAL = NodeName("germany", 0), NodeName("germany", None)


def test_a_study_of_nnlib_as_a_program_is_that_of_the_built_in_one(pool, run_area, capsys):
    calm = generate(run_area / "built-in", capsys, BUILT_IN.replace("parallel: 2", "parallel: 1"))
    submit(calm)
    assert finish(pool, calm).exit_code == 0
    (folder := run_area / "program").mkdir()
    add_program(folder)
    make_slow(folder, 0.8)
    run = generate(folder, capsys, AS_PROGRAM.replace("parallel: 2", "parallel: 1"))
    submit(run)
    evict(pool, run, FIRST, 2)
    assert finish(pool, run).exit_code == 0, (run.path / "manager.log").read_text()[-3000:]
    assert evictions(run, FIRST) == 1
    one, other = (Journal(each.region("germany").journal).read() for each in (calm, run))
    assert {n: p.point for n, p in one.proposals.items()} == {n: p.point for n, p in other.proposals.items()}
    assert {n: (s.status, s.value, s.curve) for n, s in one.settled.items()} == {
        n: (s.status, s.value, s.curve) for n, s in other.settled.items()
    }
    assert one.won == other.won and len(one.settled) == 2
    with zipfile.ZipFile(run.region("germany").champion_model) as packed:
        assert packed.read("model.nc") == (calm.region("germany").trial(FINAL) / "model.nc").read_bytes()

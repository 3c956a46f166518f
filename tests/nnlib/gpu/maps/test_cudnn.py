"""Convolutions by cuDNN: what the real library plans without a GPU, and what is given to it to execute."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings

from nnlib.errors import MachineError, NnlibError
from nnlib.gpu.backend import Gpu
from nnlib.gpu.maps import cudnn, cudnn_descriptors
from nnlib.gpu.maps.cudnn import KINDS, NOTES, WORKSPACE, Cudnn, Task
from nnlib.gpu.runtime import Runtime
from nnlib.gpu.selfcheck.by_cudnn import check_cudnn
from nnlib.spec.geometry import Sweep, Window
from tests.kernels import played_cudnn
from tests.nnlib.gpu.maps.test_convolutions import SWEEPS, require_all_three
from tests.nnlib.gpu.maps.test_parity import compare
from tests.nnlib.image_cases import case
from tests.nnlib.sweeps import sweep_over, sweeps

WIDE = sweep_over((Window(28, 3, 1, 1, 1),) * 2, 32, 64)


def has_cudnn() -> bool:
    try:
        return importlib.util.find_spec("nvidia.cudnn") is not None
    except ModuleNotFoundError:
        return False


needs_cudnn = pytest.mark.skipif(not has_cudnn(), reason="cuDNN is not here: pip install '.[cupy]'")


@pytest.fixture(params=played_cudnn.DEVICES, ids="sm_{}".format)
def planner(request: pytest.FixtureRequest) -> Iterator[Cudnn]:
    """The real cuDNN, which plans for a GPU that is not here."""
    found = Cudnn(played_cudnn.library(), played_cudnn.properties(request.param), None)
    yield found
    found.close()


@needs_cudnn
@example(sweep=sweep_over((Window(2, 2, 1),), 1, 1))  # whose gradient has an engine that loads a program
@given(sweep=sweeps(most=20, channels=9))
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)  # it has no state
def test_every_convolution_has_a_plan_within_bounds(planner, sweep):
    for kind in KINDS:
        for tensor_cores in (False, True):
            plan = planner.plan(Task(kind, sweep, 7, False, tensor_cores))
            assert plan is not None and 0 <= plan.workspace <= WORKSPACE


@needs_cudnn
def test_plans_are_made_without_complaints_of_the_driver(planner, capfd):
    for kind in KINDS:
        assert planner.plan(Task(kind, SWEEPS["unfolded groups"], 7, False, True)) is not None
    assert capfd.readouterr().err == ""


@needs_cudnn
def test_no_engine_is_taken_whose_sums_change_or_round(planner, monkeypatch):
    """The notes are read of the plans that were chosen, and some of those that were not have the one that matters."""
    made: list[int] = []

    def notes_of(config: int) -> set[int]:
        [engine] = planner.descriptors.get_descriptors(config, "ENGINECFG_ENGINE", "ENGINE", 1, made)
        return set(planner.descriptors.get(engine, "ENGINE_NUMERICAL_NOTE", 32))

    for kind in KINDS:
        for tensor_cores in (False, True):
            plan = planner.plan(Task(kind, WIDE, 64, False, tensor_cores))
            [config] = planner.descriptors.get_descriptors(
                plan.descriptor, "EXECUTION_PLAN_ENGINE_CONFIG", "ENGINECFG", 1, made
            )
            assert notes_of(config) == ({NOTES["TENSOR_CORE"]} if tensor_cores else set())
    ranked = planner._ranked(planner._graph(Task(cudnn.TO_WEIGHTS, WIDE, 64, False, True), made), made)
    assert any(NOTES["NONDETERMINISTIC"] in notes_of(config) for config in ranked)
    for one in reversed(made):
        planner.descriptors.destroy(one)


@needs_cudnn
def test_gradients_are_added_and_sums_with_a_bias_are_not(planner):
    """What is not is left to nnlib's own kernels."""
    plans = {kind: planner.plan(Task(kind, WIDE, 64, True, False)) for kind in KINDS}
    assert [kind for kind, plan in plans.items() if plan is None] == [cudnn.FORWARD]


@needs_cudnn
def test_the_bound_of_workspaces_holds(planner, monkeypatch):
    task = Task(cudnn.TO_WEIGHTS, WIDE, 64, False, True)
    most = planner.plan(task).workspace
    assert most > 1 << 20
    planner._plans.clear()
    monkeypatch.setattr(cudnn, "WORKSPACE", most - 1)
    assert planner.plan(task).workspace < most


@needs_cudnn
def test_plans_are_the_same_again_and_named(planner):
    tasks = [Task(kind, WIDE, 64, False, True) for kind in KINDS]
    first = [planner.plan(task) for task in tasks]
    assert [planner.plan(task) for task in tasks] == first
    planner._plans.clear()
    assert [planner.plan(task).engine for task in tasks] == [plan.engine for plan in first]
    assert all(
        f"{kind} {plan.engine}" in planner.versions["cudnn engines"] for kind, plan in zip(KINDS, first, strict=True)
    )
    assert planner.versions["cudnn"].startswith("9.")


@needs_cudnn
def test_numbers_are_those_of_the_header():
    found = importlib.util.find_spec("nvidia.cudnn")
    assert found and found.submodule_search_locations
    text = (Path(next(iter(found.submodule_search_locations))) / "include/cudnn_graph_v9.h").read_text()
    header = {name: int(number) for name, number in re.findall(r"CUDNN_(\w+)[\w ]*= (\d+)", text)}
    ours = {f"ATTR_{name}": number for name, (number, *_) in cudnn_descriptors.ATTRIBUTES.items()}
    ours |= {f"TYPE_{name}": number for name, (number, _) in cudnn_descriptors.C_TYPES.items()}
    ours |= {f"BACKEND_{name}_DESCRIPTOR": number for name, number in cudnn_descriptors.DESCRIPTORS.items()}
    ours |= {f"NUMERICAL_NOTE_{name}": number for name, number in NOTES.items()}
    ours |= {f"HEUR_MODE_{name}": number for name, number in cudnn.HEURISTICS.items()}
    assert ours == {name: header.get(name) for name in ours}


@pytest.fixture(params=["stand-in", pytest.param("real", marks=pytest.mark.gpu)])
def by_cudnn(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gpu]:
    """A GPU with cuDNN asked for, or what stands in for one."""
    monkeypatch.setenv(cudnn.VARIABLE, cudnn.CUDNN)
    if request.param == "real":
        runtime = Runtime.open()
    else:
        monkeypatch.setattr(cudnn, "find_library", played_cudnn.played)
        runtime = request.getfixturevalue("cupy").runtime()
    with runtime.faults():
        yield Gpu(runtime)
    runtime.close()


@needs_cudnn
@pytest.mark.parametrize("examples", [7, 2])
@pytest.mark.parametrize("name", SWEEPS)
def test_all_three(by_cudnn, name, examples):
    require_all_three(by_cudnn, SWEEPS[name], examples)
    assert set(by_cudnn.versions["cudnn engines"].replace("input ", "").replace("weight ", "").split()) >= {
        "forward",
        "gradient",
    }


@needs_cudnn
def test_captured_and_replayed_it_gives_the_same_bits(by_cudnn):
    runtime, sweep = by_cudnn._runtime, SWEEPS["unfolded"]
    random = np.random.default_rng(1)
    shapes = (7, sweep.source.units), (sweep.target.channels, sweep.fan_in), (7, sweep.target.units)
    x, w, z = (runtime.zeros(shape) for shape in shapes)
    bias = runtime.zeros(sweep.target.channels)
    for array in (x, w, bias):
        runtime.upload(array, random.standard_normal(array.shape, np.float32))
    task = Task(cudnn.FORWARD, sweep, 7, False, False)

    def work() -> None:
        assert runtime.convolve(task, (x, w, z, bias))

    work()
    first = runtime.download(z)
    graph = runtime.capture(work)
    for _ in range(20):
        runtime.clear(z)
        runtime.replay(graph)
        np.testing.assert_array_equal(runtime.download(z), first)


@needs_cudnn
@pytest.mark.parametrize("name", ["residual", "depthwise", "weights of others"])
def test_a_training(by_cudnn, name):
    compare(by_cudnn, *case(name), steps=4)
    assert {"cudnn", "cudnn engines"} <= set(by_cudnn.versions)


def test_what_is_asked_for(monkeypatch):
    for value, wanted in {"": False, "own": False, "CUDNN": True}.items():
        monkeypatch.setenv(cudnn.VARIABLE, value)
        assert cudnn.asked() is wanted
    monkeypatch.setenv(cudnn.VARIABLE, "fast")
    with pytest.raises(NnlibError, match="NNLIB_CONVOLUTIONS: 'fast' is not legal, legal: own, cudnn"):
        cudnn.asked()


def test_cudnn_that_is_asked_for_and_not_here(cupy, monkeypatch):
    monkeypatch.setenv(cudnn.VARIABLE, cudnn.CUDNN)
    monkeypatch.setattr(cudnn, "LIBRARY", "libcudnn.so.none")
    with pytest.raises(MachineError, match=r"NNLIB_CONVOLUTIONS is cudnn, and .*; install regiondag\[cudnn-cuda13\]"):
        cupy.runtime()


def refusing(status: int) -> Any:
    class Refusing:
        def __getattr__(self, _: str) -> Any:
            return lambda *__: status

    return Refusing()


def test_a_fault_says_what_failed():
    with pytest.raises(MachineError, match="cudnnBackendCreateDescriptor failed with status 2002 of cuDNN"):
        Cudnn(refusing(2002), 0, None)


def sweep_of_four(sweep: Sweep) -> bool:
    return not (sweep.source.units | sweep.target.units) % 4


@needs_cudnn
def test_examples_of_any_length_may_start_anywhere(planner):
    for sweep in SWEEPS.values():
        plan = planner.plan(Task(cudnn.TO_SOURCE, sweep, 7, False, False))
        assert plan.aligned == (16 if sweep_of_four(sweep) else 4)


@needs_cudnn
def test_the_doctor_has_it_beside_numpy(by_cudnn):
    found = dict(check_cudnn(by_cudnn._runtime))
    assert found == {f"cuDNN: {kind}{rounded}": [] for kind in KINDS for rounded in ("", ", TF32")}


@needs_cudnn
def test_the_doctor_finds_an_engine_that_is_wrong(by_cudnn, monkeypatch):
    convolve = Runtime.convolve

    def wrong(self: Runtime, task: Task, arrays: Any) -> bool:
        done = convolve(self, task, arrays)
        self.launch("mul_c", (1,), arrays[2], 1.001, arrays[2].size)
        return done

    monkeypatch.setattr(Runtime, "convolve", wrong)
    assert all(differences for name, differences in check_cudnn(by_cudnn._runtime) if "TF32" not in name)

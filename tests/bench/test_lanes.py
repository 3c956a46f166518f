"""The benchmark of lanes: its simulation runs graphs as described, and its stand-ins report as trainings do."""

from __future__ import annotations

import subprocess
from types import ModuleType

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nnlib.contract import Status, result_from_json
from regiondag.run.layout import NodeName


@pytest.fixture
def simulation(bench) -> ModuleType:
    return bench("lanes_simulation")


@pytest.fixture
def pool(bench) -> ModuleType:
    return bench("lanes_pool")


SAME_MODULE = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
SHAPES = st.tuples(*(st.integers(1, most) for most in (4, 4, 4, 9)))


def run(simulation: ModuleType, shape, schedule: str, delays: tuple[float, float], seed: int = 0) -> dict:
    plans = simulation.plans(shape, schedule)
    seconds = simulation.durations(plans, shape.shortest, seed)
    return simulation.simulate(plans, seconds, shape.slots, simulation.Delays(*delays))


def at_most(spans: dict) -> int:
    """Return the largest number of jobs that ran at the same time."""
    moments = sorted(event for span in spans.values() for event in ((span.begin, 1), (span.end, -1)))
    running = most = 0
    for _, step in moments:
        running += step
        most = max(most, running)
    return most


@SAME_MODULE
@given(SHAPES, st.sampled_from(["lanes", "rounds"]), st.floats(0, 50), st.floats(0, 5), st.integers(0, 99))
def test_the_graph_is_kept_and_slots_run_one_job_at_a_time(simulation, sizes, schedule, manager, start, seed):
    shape = simulation.Shape(*sizes, shortest=10.0)
    spans = run(simulation, shape, schedule, (manager, start), seed)
    assert len(spans) == shape.trials + shape.regions
    assert at_most(spans) <= shape.slots
    for plan in simulation.plans(shape, schedule):
        for before, after in plan.edges():
            ready = max((spans[node].end + manager + start for node in before if node in spans), default=0.0)
            assert all(spans[node].begin >= ready - 1e-6 for node in after if node in spans)
    use = simulation.use_of(spans, shape.slots)
    assert use.busy + use.start + use.between + use.drain == pytest.approx(1)
    assert min(use.busy, use.start, use.between, use.drain) >= -1e-9


@SAME_MODULE
@given(SHAPES, st.floats(0, 50), st.integers(0, 99))
def test_with_slots_for_all_no_lane_waits_for_another(simulation, sizes, manager, seed):
    regions, lanes, steps, _ = sizes
    shape = simulation.Shape(regions, lanes, steps, regions * lanes, 10.0)
    spans = run(simulation, shape, "lanes", (manager, 1.0), seed)
    for node, span in spans.items():
        before = NodeName(node.slug, node.number - lanes) if node.number is not None and node.number >= lanes else None
        if node.number is not None:
            assert span.begin == pytest.approx(spans[before].end + manager + 1.0 if before else 1.0)


def test_rounds_wait_and_lanes_do_not(simulation):
    shape = simulation.Shape(1, 2, 2, slots=2, shortest=1.0)
    seconds = {NodeName("region-0", number): float(length) for number, length in enumerate((1, 4, 4, 1))}
    seconds[NodeName("region-0", None)] = 2.0
    uses = {}
    for schedule in ("lanes", "rounds"):
        spans = simulation.simulate(simulation.plans(shape, schedule), seconds, 2, simulation.Delays(0, 0))
        uses[schedule] = simulation.use_of(spans, 2)
    assert uses["lanes"] == simulation.Use(busy=1.0, start=0.0, between=0.0, drain=0.0, seconds=5.0)
    assert uses["rounds"] == simulation.Use(busy=10 / 16, start=0.0, between=3 / 16, drain=3 / 16, seconds=8.0)
    assert uses["rounds"].without_drain == pytest.approx(10 / 13)


def test_what_final_trainings_do_before_the_last_trial_ends_counts(simulation):
    trials = {NodeName("a", 0): simulation.Span(0, 2), NodeName("b", 0): simulation.Span(0, 8)}
    use = simulation.use_of(trials | {NodeName("a", None): simulation.Span(4, 6)}, 2)
    assert (use.busy, use.between, use.drain) == (12 / 16, 2 / 16, 2 / 16)
    late = simulation.use_of(trials | {NodeName("a", None): simulation.Span(4, 20)}, 2)
    assert (late.busy, late.seconds) == (14 / 16, 8)


def test_trials_take_up_to_four_times_as_long_as_the_shortest(simulation):
    shape = simulation.Shape(3, 4, 50, slots=4, shortest=15)
    drawn = simulation.durations(simulation.plans(shape, "lanes"), shape.shortest, 1)
    assert drawn.items() > simulation.durations(simulation.plans(shape, "rounds"), shape.shortest, 1).items()
    assert 15 <= min(drawn.values()) < 16 and 56 < max(drawn.values()) <= 60


def test_a_stand_in_reports_as_a_training_does(pool, tmp_path):
    node, script = NodeName("region-0", 3), tmp_path / "train.sh"
    script.write_text(pool.worker({NodeName("region-0", 2): 60.0, node: 0.01}))
    (tmp_path / "trial.json").write_text(f'{{\n "network": "network.json",\n "node": "{node}",\n "number": 3\n}}\n')
    subprocess.run(["sh", script], cwd=tmp_path, check=True)
    result = result_from_json((tmp_path / "result.json").read_text())
    assert (result.node, result.status, result.seconds) == (str(node), Status.OK, 0.01)
    assert result.value == result.metrics["ndcg@5"] is not None
    assert (tmp_path / "model.nc").stat().st_size > 0
    (tmp_path / "trial.json").write_text('{"node": "elsewhere_t0000"}')
    assert subprocess.run(["sh", script], cwd=tmp_path, check=False).returncode == 4


def test_delays_are_those_of_the_jobs(pool, simulation, bench):
    times = bench("orchestration_pool").Times
    shape = simulation.Shape(1, 1, 2, slots=1, shortest=1)
    nodes = {
        NodeName("region-0", 0): times(submitted=0, executing=2, ended=10, settled=11, post_ended=12),
        NodeName("region-0", 1): times(submitted=15, executing=16, ended=20, proposed=14),
        NodeName("region-0", None): times(submitted=23, executing=26, ended=30),
    }
    assert pool.delays(shape, "lanes", nodes) == simulation.Delays(manager=4, start=2)
    parts = pool.parts(shape, nodes)
    assert (parts.settle, parts.post_end, parts.propose, parts.submit, parts.start) == (1, 1, 2, 1, 1)

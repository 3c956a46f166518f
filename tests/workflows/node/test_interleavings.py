"""PRE and POST of all nodes in any order that DAGMan may call them in, repeated and torn at any place."""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from nnlib.contract import ContractError, Result, Status, result_from_json, result_to_json
from regiondag.errors import GiveUpError, RegiondagError, TryAgainError
from regiondag.node import trial_files
from regiondag.node.post import REMOVED, JobEnd, settle_final, settle_trial
from regiondag.node.pre import prepare_trial
from regiondag.node.pre_final import prepare_final
from regiondag.run.history import OPEN
from regiondag.run.journal import Journal
from regiondag.run.layout import NodeName, RegionFolder, RunFolder
from tests.workflows.conftest import write_study
from tests.workflows.generate.test_write_run import create
from tests.workflows.played import play_job

ROUNDS = ((0, 1), (2, 3), (None,))  # each waits for the one before it; None is the final training
RETRIES = 1
ENDS = {"ok": 0, "diverged": 3, "bad input": 4, "machine": 75, "killed": -9, "removed": REMOVED, "cancelled": REMOVED}

FIRST = JobEnd(0, 0, RETRIES)
VALUES = st.sampled_from([0.0, 0.1, -0.2, 1 / 3])
OUTCOMES = st.sampled_from(["ok", "ok", "ok", *ENDS])
NODES = st.sampled_from([number for some in ROUNDS for number in some])
TORN_STEPS = st.tuples(st.integers(0, 3), OUTCOMES, VALUES, st.none() | st.floats(0, 1))
REPEATED_STEPS = st.tuples(st.integers(0, 3), OUTCOMES, VALUES, st.lists(NODES, max_size=3))


@dataclass
class Place:
    """Where one node of a DAG stands."""

    node: NodeName
    state: str = "waits"  # or runs, done, failed
    retry: int = 0
    last: str = ""  # which script was called last
    end: JobEnd = FIRST


@dataclass
class Dag:
    """Plays DAGMan over one region, and keeps what must not change any more."""

    folder: RegionFolder
    jobs: int = 0
    places: dict[int | None, Place] = field(default_factory=dict)
    known: dict[int | None, object] = field(default_factory=dict)
    values: dict[int | None, float] = field(default_factory=dict)  # that jobs have brought

    def __post_init__(self) -> None:
        self.places = {number: Place(NodeName("germany", number)) for some in ROUNDS for number in some}
        self.journal = Journal(self.folder.journal)

    def next_place(self, choice: int) -> Place | None:
        """Return one of the nodes that can go on; those that failed go on as a rescue DAG lets them."""
        for some in ROUNDS:
            ready = [self.places[number] for number in some if self.places[number].state != "done"]
            if ready:
                return ready[choice % len(ready)]
        return None

    def step(self, place: Place, outcome: str, value: float) -> None:
        """Call PRE of a node, or let its job end and call POST."""
        if place.state != "runs":
            place.retry = 0 if place.state == "failed" else place.retry
            self.call(place, "pre")
            return
        self.jobs += 1
        place.end = JobEnd(ENDS[outcome], place.retry, RETRIES, job=f"{self.jobs}.0")
        status = {"diverged": Status.DIVERGED, "bad input": Status.BAD_INPUT}.get(outcome, Status.OK)
        if outcome in ("ok", "diverged", "bad input"):
            finish(self.folder, place.node, status, value)
        if outcome == "ok":
            self.values[place.node.number] = value
        if outcome == "cancelled" and place.node.number is not None:
            with self.journal.locked():
                self.journal.append("cancelled", trial=place.node.number)
        self.call(place, "post")

    def call(self, place: Place, script: str) -> None:
        """Call a script and take its exit code as DAGMan does."""
        final = place.node.number is None
        place.last = script
        try:
            if script == "pre":
                runs = (prepare_final if final else prepare_trial)(self.folder, place.node)
                place.state = "runs" if runs else "done"
            else:
                (settle_final if final else settle_trial)(self.folder, place.node, place.end)
                place.state = "done"
        except TryAgainError:
            place.state = "failed" if place.end.retry == RETRIES else "waits"
            place.retry = place.end.retry + 1
        except GiveUpError:
            place.state = "failed"
        self.check()

    def check(self) -> None:
        """What is known for good stays, and nothing is proposed or settled twice."""
        history = self.journal.read()
        for number, outcome in self.known.items():
            assert history.outcome(number) == outcome
        self.known |= {number: found for number in self.places if (found := history.outcome(number))}
        told = [(event, number) for event, number, open_ in map(event_of, lines(self.journal)) if not open_]
        assert len(told) == len(set(told))


def event_of(record: dict[str, object]) -> tuple[object, object, bool]:
    """Return what a record tells of which trial, or of which of its jobs, and whether it may come again."""
    open_ = record["event"] in ("won", "stopped", "cancelled") or record.get("status") in OPEN
    open_ |= record.get("trial", 0) is None and record.get("status") != "ok"  # a final training that failed
    return record["event"], record["job" if record["event"] == "attempt" else "trial"], open_


def finish(folder: RegionFolder, node: NodeName, status: Status, value: float) -> None:
    """Play the job: write result.json and the model as the worker would."""
    play_job(folder, node, value)
    if status is not Status.OK:
        (folder.trial(node) / "result.json").write_text(result_to_json(Result(str(node), status)))


def lines(journal: Journal) -> list[dict[str, object]]:
    """Return the journal's records without their times."""
    text = journal.path.read_text() if journal.path.exists() else ""
    found = [json.loads(line) for line in text.split("\n")[:-1]]
    return [{key: value for key, value in record.items() if key not in ("time", "after")} for record in found]


def without_proposals(journal: Journal) -> list[dict[str, object]]:
    """Return all records but what each trial was given."""
    return [record for record in lines(journal) if record["event"] != "proposed"]


@pytest.fixture(scope="module")
def spec(tmp_path_factory):
    """Return what PRE and POST know of a region of two rounds; and keep them from waiting for disks and pools."""
    root = tmp_path_factory.mktemp("study")
    run = create(write_study(root), root / "runs")
    raw = json.loads(run.region("germany").spec.read_text())
    raw["search"] |= {"method": "random", "sizes": [2, 2]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        patch.setattr(trial_files, "query_machines", lambda **_: [])
        yield json.dumps(raw)


def new_dag(root: str, name: str, spec: str) -> Dag:
    folder = RunFolder(Path(root, name)).region("germany")
    folder.path.mkdir(parents=True)
    folder.spec.write_text(spec)
    return Dag(folder)


def tear(path: Path, kept: int, share: float) -> None:
    """Leave of what was written behind the first `kept` bytes only a part, as a crash does."""
    whole = path.read_bytes() if path.exists() else b""
    if len(whole) > kept:
        path.write_bytes(whole[: kept + int(share * (len(whole) - kept))])


@settings(max_examples=8)
@given(steps=st.lists(TORN_STEPS, min_size=5, max_size=16))
@example(steps=[(0, "ok", 0.1, None)] * 9 + [(0, "ok", 0.1, 0.0)])  # the end, after the promotion
def test_a_call_that_crashed_and_is_repeated_changes_nothing(spec, steps):
    """The last of each step says how much of the journal's new lines a crash leaves before the call is repeated."""
    with tempfile.TemporaryDirectory() as root:
        once, again = new_dag(root, "once", spec), new_dag(root, "again", spec)
        for choice, outcome, value, torn in steps:
            place, other = once.next_place(choice), again.next_place(choice)
            if place is None or other is None:
                break
            once.step(place, outcome, value)
            path = again.folder.journal
            before = path.stat().st_size if path.exists() else 0
            again.step(other, outcome, value)
            if torn is not None:
                if outcome != "cancelled":  # that line is a person's
                    again.known = {}
                    tear(path, before, torn)
                again.journal.read()
                again.call(other, other.last)
            assert other == place
        assert without_proposals(again.journal) == without_proposals(once.journal)
        # A crash may tear off proposals of nodes that are yet to come: they are made again for these, and the same.
        assert again.journal.read().proposals.items() <= once.journal.read().proposals.items()


@settings(max_examples=8)
@given(steps=st.lists(REPEATED_STEPS, min_size=5, max_size=16))
def test_calls_that_a_recovery_repeats_in_any_order_lose_and_double_nothing(spec, steps):
    """The last of each step names nodes whose last call DAGMan has forgotten by then."""
    with tempfile.TemporaryDirectory() as root:
        dag = new_dag(root, "run", spec)
        for choice, outcome, value, forgotten in steps:
            place = dag.next_place(choice)
            if place is not None:
                dag.step(place, outcome, value)
            for number in forgotten:
                if dag.places[number].last:
                    dag.call(dag.places[number], dag.places[number].last)
        seen = {number: found.value for number, found in dag.journal.read().settled.items() if found.ok}
        assert seen == {number: value for number, value in dag.values.items() if number is not None}


HALF = "\ud800"  # of a character, which JSON can write and no file takes
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.sampled_from([HALF, 10**400])
)
ANYTHING = st.recursive(
    SCALARS, lambda some: st.lists(some, max_size=2) | st.dictionaries(st.text(max_size=2), some, max_size=2)
)
FIELDS = st.sampled_from([field.name for field in fields(Result)])


@settings(max_examples=20)
@given(changes=st.dictionaries(FIELDS, ANYTHING, max_size=2), end=st.sampled_from([0, 3, 75]))
def test_whatever_a_result_says_it_is_settled_or_told(spec, changes, end):
    with tempfile.TemporaryDirectory() as root:
        dag = new_dag(root, "run", spec)
        node = NodeName("germany", 0)
        prepare_trial(dag.folder, node)
        finish(dag.folder, node, Status.OK, 0.5)
        result = dag.folder.trial(node) / "result.json"
        result.write_text(json.dumps(json.loads(result.read_text()) | changes))
        with suppress(RegiondagError):
            settle_trial(dag.folder, node, JobEnd(end, 0, RETRIES, job="1.0"))
        with suppress(RegiondagError):
            prepare_trial(dag.folder, node)
        assert dag.journal.read().attempt_seconds >= 0
        with suppress(RegiondagError):
            prepare_final(dag.folder, NodeName("germany", None))


@pytest.mark.parametrize(
    "changes",
    [{"value": 10**400}, {"metrics": {HALF: 1}}, {"reason": 5}, {"best_epoch": 1.5}, {"seconds": -1}, {"machine": 5}],
)
def test_a_result_of_other_kinds_is_none(changes):
    text = result_to_json(Result("germany_t0000", Status.OK, value=0.5, seconds=1.0))
    with pytest.raises(ContractError, match="not a result"):
        result_from_json(json.dumps(json.loads(text) | changes))


def test_a_result_that_is_nested_without_end_is_none():
    with pytest.raises(ContractError, match="not JSON"):
        result_from_json("[" * 100_000)


def test_only_the_name_of_a_machine_is_taken_for_one(spec, tmp_path):
    dag = new_dag(str(tmp_path), "run", spec)
    node = NodeName("germany", 0)
    prepare_trial(dag.folder, node)
    finish(dag.folder, node, Status.OK, 0.5)
    result = dag.folder.trial(node) / "result.json"
    result.write_text(result.read_text().replace('"host": ""', '"host": "a\\"\\nqueue 9"'))
    assert settle_trial(dag.folder, node, FIRST).host == ""

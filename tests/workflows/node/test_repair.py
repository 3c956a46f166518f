"""Each kind of record of a run, damaged or gone: noticed, and made whole from the others to the same champion."""

from __future__ import annotations

import itertools
import json
import shutil

import pytest

from nnlib.contract import sha256_of
from regiondag.cli import main
from regiondag.errors import GiveUpError
from regiondag.node.pre import prepare_trial
from regiondag.run.journal import Journal
from regiondag.run.layout import NodeName, RunFolder, dagman_file
from tests.workflows.audit.test_verify import edit, flip

pytestmark = pytest.mark.slow

GERMANY = "regions/germany"
POST = "016 ({cluster}.000.000) 2026-11-24 05:34:{cluster:02d} POST Script terminated.\n"
POST += "\t(1) Normal termination (return value {code})\n    DAG Node: {node}\n...\n"


def note_posts(run, nodes, code=0):
    """Write what DAGMan notes of POST scripts."""
    events = (POST.format(cluster=number, node=node, code=code) for number, node in enumerate(nodes, start=1))
    dagman_file(run.study_dag, "nodes.log").write_text("".join(events))


def nodes_of(run, slug="germany"):
    history = Journal(run.region(slug).journal).read()
    return [str(NodeName(slug, number)) for number in [*sorted(history.settled), None]]


@pytest.fixture
def run(trained, tmp_path):
    run = RunFolder(shutil.copytree(trained.path, tmp_path / trained.path.name))
    note_posts(run, nodes_of(run))
    return run


@pytest.fixture(autouse=True)
def _no_pool(monkeypatch, tmp_path):
    monkeypatch.setenv("REGIONDAG_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("regiondag.pool.pool.find_pool", lambda name=None: None)


def call(capsys, *argv):
    capsys.readouterr()
    code = main([str(word) for word in argv])
    told = capsys.readouterr()
    return code, told.out, told.err


def known(run):
    """Return what the journal says, less what a repair says of itself."""
    history = Journal(run.region("germany").journal).read()
    outcomes = {number: (one.status, one.value, one.curve, one.result) for number, one in history.settled.items()}
    points = {number: dict(one.point) for number, one in history.proposals.items()}
    return points, outcomes, history.won, (history.final.status, history.final.metrics)


def champion(run):
    folder = run.region("germany")
    return sha256_of(folder.champion_model), json.loads(folder.champion_metrics.read_text())


def lines_of(run):
    return run.region("germany").journal.read_bytes().splitlines(keepends=True)


def change_lines(run, change):
    lines = lines_of(run)
    change(lines)
    run.region("germany").journal.write_bytes(b"".join(lines))


def raise_a_value(lines):
    at = next(number for number, line in enumerate(lines) if b'"settled"' in line)
    record = json.loads(lines[at])
    lines[at] = json.dumps({**record, "value": 0.99}).encode() + b"\n"


DAMAGE = {
    "no journal": lambda run: run.region("germany").journal.unlink(),
    "an empty journal": lambda run: run.region("germany").journal.write_bytes(b""),
    "no last lines": lambda run: change_lines(run, lambda lines: lines.__delitem__(slice(3, None))),
    "no first line": lambda run: change_lines(run, lambda lines: lines.pop(0)),
    "a line gone": lambda run: change_lines(run, lambda lines: lines.pop(len(lines) // 2)),
    "a line twice": lambda run: change_lines(run, lambda lines: lines.insert(2, lines[1])),
    "lines in another order": lambda run: change_lines(run, lambda lines: lines.insert(0, lines.pop(1))),
    "a line that is none": lambda run: change_lines(run, lambda lines: lines.insert(2, b"\0\0\0\n")),
    "a changed value": lambda run: change_lines(run, raise_a_value),
    "no champion": lambda run: shutil.rmtree(run.region("germany").champion_model.parent),
    "no facts of the champion": lambda run: run.region("germany").champion_metrics.unlink(),
    "another champion": lambda run: flip(run.region("germany").champion_model),
    "no final model": lambda run: (run.path / GERMANY / "trials/final/model.nc").unlink(),
    "changed data": lambda run: flip(run.path / GERMANY / "data.train.nc"),
    "no network": lambda run: (run.path / GERMANY / "network.json").unlink(),
}
# Of two copies one must be left.
TOO_MUCH = ({"no final model", "no champion"}, {"no final model", "another champion"},
            {"no final model", "no facts of the champion"})  # fmt: skip
# What only one record has: which trial the journal named is asked of the champion.
PAIRS = [pair for pair in itertools.combinations(DAMAGE, 2) if set(pair) not in TOO_MUCH]


def test_a_whole_run_needs_no_repair(run, capsys):
    before = lines_of(run)
    assert call(capsys, "repair", run.path)[0] == call(capsys, "repair", run.path, "--apply")[0] == 0
    assert lines_of(run) == before


@pytest.mark.parametrize("kind", DAMAGE)
def test_what_is_damaged_is_noticed_and_made_whole_to_the_same_champion(run, capsys, kind):
    outcomes, model = known(run), champion(run)
    DAMAGE[kind](run)
    code, said, _ = call(capsys, "verify", run.path)
    assert code == 1 and said.startswith(GERMANY), said
    damaged = {path: path.read_bytes() for path in run.path.rglob("*") if path.is_file()}
    code, said, told = call(capsys, "repair", run.path)
    assert code == 1 and ": would " in said and "can be repaired" in told
    assert damaged == {path: path.read_bytes() for path in damaged}
    code, said, told = call(capsys, "repair", run.path, "--apply")
    assert (code, told) == (0, f"{said.count(chr(10))} repaired, 0 left\n"), said
    assert known(run) == outcomes
    assert champion(run) == model
    assert call(capsys, "verify", run.path)[0] == 0


@pytest.mark.parametrize("kinds", PAIRS, ids=" and ".join)
def test_two_kinds_of_damage_at_once_are_made_whole_or_told(run, capsys, kinds):
    outcomes, model = known(run), champion(run)
    for kind in kinds:
        try:
            DAMAGE[kind](run)
        except (FileNotFoundError, IndexError, StopIteration):
            pytest.skip("nothing is left to damage")
    assert call(capsys, "verify", run.path)[0] == 1
    code, _, _ = call(capsys, "repair", run.path, "--apply")
    assert code == call(capsys, "verify", run.path)[0]
    if code == 0:
        assert known(run)[:2] == outcomes[:2] and champion(run)[0] == model[0]


@pytest.mark.parametrize("name", ["result.json", "trial.json"])
def test_what_no_other_record_holds_is_told(run, capsys, name):
    (run.path / GERMANY / "trials/0001" / name).unlink()
    code, said, told = call(capsys, "repair", run.path, "--apply")
    assert code == 1 and "0 repaired, 1 left" in told and "trial rerun" in said


def test_a_result_that_was_edited_does_not_become_the_journal_s(run, capsys):
    outcomes = known(run)
    edit(run.path / GERMANY / "trials/0001/result.json", value=0.99)
    assert call(capsys, "repair", run.path, "--apply")[0] == 1
    assert known(run) == outcomes


def test_pre_stops_a_region_whose_journal_has_lost_trials(run, capsys):
    folder = run.region("germany")
    folder.journal.unlink()
    with pytest.raises(GiveUpError, match=r"knows nothing of trials? 1"):
        prepare_trial(folder, NodeName("germany", 0))
    assert call(capsys, "status", run.path)[2].count("regiondag repair") == 1


def test_journals_of_before_lines_named_each_other_are_whole(run, capsys):
    records = [json.loads(line) for line in lines_of(run)]
    plain = "".join(json.dumps({k: v for k, v in record.items() if k != "after"}) + "\n" for record in records)
    run.region("germany").journal.write_text(plain)
    assert call(capsys, "verify", run.path)[0] == 0
    with Journal(run.region("germany").journal).locked():
        Journal(run.region("germany").journal).append("praised")
    assert call(capsys, "verify", run.path)[0] == 0

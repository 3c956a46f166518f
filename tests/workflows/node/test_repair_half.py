"""A run that stopped half way, damaged: noticed, made whole, and gone on with to the same champion; or told why not."""

from __future__ import annotations

import itertools
import json
import math
import shutil
from contextlib import redirect_stdout

import pytest

from nnlib.contract import sha256_of, trial_from_json
from regiondag.node import trial_files
from regiondag.node.main import main
from regiondag.run.journal import Journal
from regiondag.run.layout import NodeName, RunFolder, dagman_file
from tests.workflows.conftest import STUDY, write_study
from tests.workflows.generate.test_write_run import create
from tests.workflows.node.test_repair import call, change_lines, note_posts, raise_a_value
from tests.workflows.played import play_job

pytestmark = pytest.mark.slow

LONGER = STUDY.replace("rounds: 2", "rounds: 3")
SETTLED, OPEN, TO_COME = (0, 1, 2), 3, (4, 5)
NODES = {number: NodeName("germany", number) for number in (*SETTLED, OPEN, *TO_COME, None)}
GERMANY = "regions/germany"


def script(run, kind, number, *more):
    """Call PRE or POST as DAGMan does; return whether there is work to do."""
    with run.manager_log.open("a") as log, redirect_stdout(log):
        code = main([kind, str(run.path), str(NODES[number]), *more])
    assert code in (0, 77), run.manager_log.read_text()
    return code == 0


def prepare(run, number):
    return script(run, "pre", number, "0")


def play(run, number):
    """Play a node's job, which reaches the more the nearer its point is to one, and settle it."""
    folder = run.region("germany")
    trial = trial_from_json((folder.trial(NODES[number]) / "trial.json").read_text())
    far = abs(math.log10(trial.train.learning_rate) + 1.7) + abs(trial.hyperparameters["hidden"] - 5) / 10
    play_job(folder, NODES[number], round(0.5 / (1 + far), 6))
    script(run, "post", number, "0", "0", "2", "0", "")


def go_on(run):
    """Do what is left of the region, as DAGMan would; return the champion and all points."""
    folder = run.region("germany")
    for number in NODES:
        if prepare(run, number):
            play(run, number)
    history = Journal(folder.journal).read()
    facts = json.loads(folder.champion_metrics.read_text())
    points = {number: dict(one.point) for number, one in history.proposals.items()}
    values = {number: one.value for number, one in history.settled.items()}
    return points, values, history.won[0], sha256_of(folder.champion_model), {**facts, "run": ""}


@pytest.fixture(scope="module")
def half(tmp_path_factory):
    """A run of which three trials are settled and a fourth was in the queue as DAGMan ended; nobody may change it."""
    root = tmp_path_factory.mktemp("half")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trial_files, "query_machines", lambda **_: [])
        run = create(write_study(root, LONGER), root / "runs")
        for number in SETTLED:
            prepare(run, number)
            play(run, number)
        prepare(run, OPEN)
    done = [str(NODES[number]) for number in SETTLED]
    note_posts(run, done)
    dagman_file(run.study_dag, "rescue001").write_text("".join(f"DONE {node}\n" for node in done))
    return run


@pytest.fixture(scope="module")
def whole(half, tmp_path_factory):
    """What comes of it where nothing is damaged."""
    runs = shutil.copytree(half.path.parent, tmp_path_factory.mktemp("whole") / "runs")
    return go_on(RunFolder(runs / half.path.name))


@pytest.fixture
def run(half, tmp_path):
    return RunFolder(shutil.copytree(half.path, tmp_path / "runs" / half.path.name))


@pytest.fixture(autouse=True)
def _no_pool(monkeypatch, tmp_path):
    monkeypatch.setenv("REGIONDAG_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("regiondag.pool.pool.find_pool", lambda name=None: None)
    monkeypatch.setattr(trial_files, "query_machines", lambda **_: [])


def drop_proposals(lines):
    lines[:] = [line for line in lines if b'"proposed"' not in line]


def drop_last(event):
    def drop(lines):
        del lines[max(number for number, line in enumerate(lines) if event in line)]

    return drop


def on_journal(change):
    return lambda run: change_lines(run, change)


def file(name):
    return lambda run: run.path / GERMANY / name


def remove(name):
    return lambda run: file(name)(run).unlink()


def edit(name, **values):
    def change(run):
        path = file(name)(run)
        path.write_text(json.dumps(json.loads(path.read_text()) | values))

    return change


def flip(name):
    def change(run):
        raw = bytearray(file(name)(run).read_bytes())
        raw[len(raw) // 2] ^= 1
        file(name)(run).write_bytes(raw)

    return change


# Made whole from other records.
MENDED = {
    "no journal": remove("trials.jsonl"),
    "an empty journal": lambda run: file("trials.jsonl")(run).write_bytes(b""),
    "no last lines": on_journal(lambda lines: lines.__delitem__(slice(3, None))),
    "no first line": on_journal(lambda lines: lines.pop(0)),
    "no last end": on_journal(drop_last(b'"settled"')),
    "no last proposal": on_journal(drop_last(b'"proposed"')),
    "no proposals": on_journal(drop_proposals),
    "a line twice": on_journal(lambda lines: lines.insert(2, lines[1])),
    "lines in another order": on_journal(lambda lines: lines.insert(0, lines.pop(1))),
    "a line that is none": on_journal(lambda lines: lines.insert(2, b"\0\0\0\n")),
    "a changed value": on_journal(raise_a_value),
    "changed data": flip("data.train.nc"),
    "no network": remove("network.json"),
}
# What no other record holds: said, with what to do.
TOLD = {
    "no result": remove("trials/0001/result.json"),
    "a changed result": edit("trials/0001/result.json", value=0.99),
    "a changed trial.json": edit("trials/0001/trial.json", hyperparameters={"hidden": 1000}),
    "no folder of a settled trial": lambda run: shutil.rmtree(file("trials/0001")(run)),
    "a damaged region.json": flip("region.json"),
}
# What PRE and DAGMan make anew, or do without.
HARMLESS = {
    "no folder of the open trial": lambda run: shutil.rmtree(file("trials/0003")(run)),
    "no trial.json of the open trial": remove("trials/0003/trial.json"),
    "no start of the open trial": lambda run: shutil.rmtree(file("trials/0003/start")(run)),
    "no rescue file": lambda run: dagman_file(run.study_dag, "rescue001").unlink(),
    "no log of PRE and POST": lambda run: run.manager_log.unlink(),
    "no log of DAGMan's": lambda run: dagman_file(run.study_dag, "nodes.log").unlink(),
    "a torn last line": on_journal(lambda lines: lines.append(b'{"event": "sett')),
}
DAMAGE = MENDED | TOLD | HARMLESS


def damage(run, kinds):
    for kind in kinds:
        try:
            DAMAGE[kind](run)
        except (FileNotFoundError, IndexError, StopIteration, ValueError):
            pytest.skip("nothing is left to damage")


def test_a_half_finished_run_goes_on_by_itself(run, whole, capsys):
    assert call(capsys, "verify", run.path)[0] == call(capsys, "repair", run.path, "--apply")[0] == 0
    assert go_on(run) == whole
    assert call(capsys, "verify", run.path)[0] == 0


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_half_is_noticed_and_goes_on_to_the_same_champion(run, whole, capsys, kind):
    damage(run, [kind])
    code, said, _ = call(capsys, "verify", run.path)
    assert (code, bool(said)) == (int(kind not in HARMLESS), kind not in HARMLESS), said
    code, said, _ = call(capsys, "repair", run.path, "--apply")
    assert code == (kind in TOLD), said
    if kind in TOLD:
        assert any(word in said for word in ("trial rerun", "restore it from a copy", "Restore it from a copy")), said
        return
    assert call(capsys, "verify", run.path)[0] == 0
    assert go_on(run) == whole
    assert call(capsys, "verify", run.path)[0] == 0


@pytest.mark.parametrize("kinds", list(itertools.combinations(DAMAGE, 2)), ids=" and ".join)
def test_two_kinds_of_damage_to_a_half_go_on_to_the_same_champion_or_are_told(run, whole, capsys, kinds):
    damage(run, kinds)
    noticed = call(capsys, "verify", run.path)[0]
    if not set(kinds) <= HARMLESS.keys():
        assert noticed == 1
    code, said, _ = call(capsys, "repair", run.path, "--apply")
    assert code == call(capsys, "verify", run.path)[0]
    if code:
        assert said
        return
    assert go_on(run) == whole

"""Lines of another run, or of another region, in a journal: seen by verify, status and PRE, and left out by repair."""

from __future__ import annotations

import json
import shutil

import pytest

from regiondag.errors import GiveUpError
from regiondag.node import trial_files
from regiondag.node.pre import prepare_trial
from regiondag.node.pre_final import prepare_final
from regiondag.run.journal import BEGINNING, Journal, digest_of_line, find_breaks
from regiondag.run.layout import NodeName, RunFolder
from regiondag.run.region_spec import make_run_id, read_run_id, read_spec
from tests.workflows.conftest import write_study
from tests.workflows.generate.test_write_run import create
from tests.workflows.node.test_repair import call
from tests.workflows.node.test_repair_half import LONGER, NODES, OPEN, _no_pool, go_on, half, play, prepare, run, whole

__all__ = ["_no_pool", "half", "run", "whole"]
pytestmark = pytest.mark.slow

JOURNAL = "regions/germany/trials.jsonl"


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """Another run of the same study, as far as the one of `half`: nobody may change it."""
    root = tmp_path_factory.mktemp("other")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trial_files, "query_machines", lambda **_: [])
        run = create(write_study(root, LONGER), root / "runs")
        for number in (0, 1, 2):
            prepare(run, number)
            play(run, number)
        prepare(run, OPEN)
    return run


def chained(lines):
    """Chain lines by what stands in them alone, as whoever copies some by hand would."""
    after, found = BEGINNING, []
    for line in lines:
        record = json.loads(line)
        line = json.dumps({name: after if name == "after" else record[name] for name in record}, ensure_ascii=False)
        after = digest_of_line(line.encode())
        found.append(line.encode())
    return found


def put(run, lines):
    """Make these the journal, and let manager.log know its last line: nothing else is left that would tell."""
    journal = run.region("germany").journal
    journal.write_bytes(b"".join(line + b"\n" for line in lines))
    log = run.manager_log.read_text().splitlines()
    log = [line.partition("; journal ")[0] + f"; journal {digest_of_line(lines[-1])}" for line in log]
    run.manager_log.write_text("\n".join(log) + "\n")
    assert not find_breaks(lines)


def all_of_another_run(_, other):
    return Journal(other.region("germany").journal).lines()


def all_of_another_region(run, _):
    journal = Journal(run.region("united-kingdom").journal)
    with journal.locked():
        journal.append("proposed", trial=0, point={"hidden": 4, "learning_rate": 0.01})
        journal.append("settled", trial=0, status="ok", reason="", value=0.5)
    return journal.lines()


def one_line(run, other):
    ours, theirs = (Journal(one.region("germany").journal).lines() for one in (run, other))
    at = next(number for number, line in enumerate(theirs) if b'"settled"' in line)
    return chained([*ours[:2], theirs[at], *ours[2:]])


def one_line_of_before(run, other):
    ours = Journal(run.region("germany").journal).lines()
    old = json.loads(ours[-1])
    del old["run"]
    return chained([*ours[:-1], json.dumps(old).encode()])


KINDS = {
    all_of_another_run: "lines 1, 2, 3, 4 and",
    all_of_another_region: "lines 1, 2 are of another run or region",
    one_line: "line 3 is of another run or region",
    one_line_of_before: "line 7 is of another run or region",
}


@pytest.mark.parametrize("kind", KINDS)
def test_lines_of_others_are_seen_by_all_and_repaired_to_the_same_champion(run, other, whole, capsys, kind):
    put(run, kind(run, other))
    code, said, _ = call(capsys, "verify", run.path)
    assert code == 1 and f"{JOURNAL}: {KINDS[kind]}" in said and "`regiondag repair RUN`" in said
    told = call(capsys, "status", run.path)[2]
    assert "of another run or region: `regiondag repair RUN`" in " ".join(told.split())
    strangers = json.loads(call(capsys, "status", run.path, "--json")[1])["regions"]
    assert [bool(one["strangers"]) for one in strangers] == [one["slug"] == "germany" for one in strangers]
    for number, pre in ((OPEN, prepare_trial), (4, prepare_trial), (None, prepare_final)):
        with pytest.raises(GiveUpError, match=r"of another run or region: .regiondag repair"):
            pre(run.region("germany"), NODES[number])
    assert call(capsys, "repair", run.path)[1].count("none of this journal") == 1
    call(capsys, "repair", run.path, "--apply")
    assert "another run or region" not in call(capsys, "verify", run.path)[1]
    assert go_on(run)[:4] == whole[:4]


def test_what_a_script_says_of_it_is_of_its_own_run(run, other):
    journal = Journal(run.region("germany").journal)
    put(run, all_of_another_run(run, other))
    with journal.locked():
        journal.note_stop(4, "of another run")
    *theirs, ours = journal.lines()
    assert json.loads(ours)["run"] == journal.run_id and not find_breaks([*theirs, ours])
    assert journal.read().strangers == list(range(1, len(theirs) + 1))


def test_each_way_of_reading_sees_the_same_strangers(run, other):
    journal = Journal(run.region("germany").journal)
    assert journal.read().strangers == journal.read(whole=False).strangers == journal.read_outcomes().strangers == []
    for kind in KINDS:
        put(run, kind(run, other))
        seen = journal.read().strangers
        assert seen and seen == journal.read(whole=False).strangers == journal.read_outcomes().strangers


def test_runs_of_before_lines_had_an_id_go_on_as_they_were(run, whole, capsys):
    """PRE and POST of a run are of the version that made it; commands of this one write into its journals, too."""
    for slug in ("germany", "united-kingdom"):
        spec = run.region(slug).spec
        raw = json.loads(spec.read_text())
        del raw["run_id"]
        spec.write_text(json.dumps(raw, indent=1))
    folder = run.region("germany")
    records = [json.loads(line) for line in Journal(folder.journal).lines()]
    put(run, chained(json.dumps({k: v for k, v in record.items() if k != "run"}).encode() for record in records))
    assert read_spec(folder.spec).run_id == read_run_id(folder.spec) == ""
    assert "trials.jsonl" not in call(capsys, "verify", run.path)[1]
    assert go_on(run)[:4] == whole[:4]
    assert b'"run": ' not in folder.journal.read_bytes()
    assert "trials.jsonl" not in call(capsys, "verify", run.path)[1]


def test_a_region_that_is_served_takes_no_lines_of_others_either(run, other):
    """As PRE of its last node does, which writes into its journal."""
    folder = run.region("united-kingdom")
    shutil.copyfile(other.region("germany").journal, folder.journal)
    with pytest.raises(GiveUpError, match="of another run or region"):
        prepare_final(folder, NodeName("united-kingdom", None))


def test_an_id_is_of_one_run_and_one_region(half, other):
    ids = {read_run_id(one.region(slug).spec) for one in (half, other) for slug in ("germany", "united-kingdom")}
    assert len(ids) == 4 and all(len(one) == 12 for one in ids)
    assert read_run_id(half.region("germany").spec) == read_spec(half.region("germany").spec).run_id
    path = RunFolder(half.path)
    assert make_run_id(path.path, "now", "a") != make_run_id(path.path, "now", "b")
    assert read_run_id(half.path / "none.json") == read_run_id(half.manifest) == ""

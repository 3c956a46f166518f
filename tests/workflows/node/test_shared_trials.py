"""What PRE reads of other regions and of earlier runs, from real run directories."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from nnlib.contract import Metric
from regiondag.cli import main
from regiondag.errors import RegiondagError
from regiondag.node import journal_index
from regiondag.node.post import JobEnd, settle_trial
from regiondag.node.pre import prepare_trial
from regiondag.node.pre_final import prepare_final
from regiondag.node.shared_trials import read_shared
from regiondag.run.earlier_trials import MOST, RUNS, find_earlier, read_earlier
from regiondag.run.journal import Journal
from regiondag.run.layout import NodeName, RunFolder
from regiondag.run.region_spec import read_spec
from regiondag.tuning.propose import rank_trials
from tests.workflows.conftest import STUDY, write_study
from tests.workflows.played import play_job

pytestmark = pytest.mark.slow

SHARING = STUDY.replace("  parallel: 2\n", "  parallel: 2\n  share: model\n")
ALONE = SHARING.replace("share: model", "share: off")


def generate(study, capsys):
    capsys.readouterr()
    assert main(["generate", "--quiet", str(study), "--htcondor", "23.9"]) == 0
    return RunFolder(study.parent / "runs" / capsys.readouterr().out.strip().rsplit("/", 1)[1])


def play(run, slug, values, first=0):
    """Propose and settle trials; None diverges."""
    folder = run.region(slug)
    for number, value in enumerate(values, start=first):
        node = NodeName(slug, number)
        assert prepare_trial(folder, node)
        if value is not None:
            play_job(folder, node, value, metrics={"ndcg@5": value}, seconds=2.0, best_epoch=0)
        settle_trial(folder, node, JobEnd(3 if value is None else 0, 0, 2))


def shared(run, slug):
    folder = run.region(slug)
    return read_shared(folder, read_spec(folder.spec))


@pytest.fixture
def study(tmp_path):
    return write_study(tmp_path, SHARING)


def points(run, slug):
    return [proposal.point for _, proposal in sorted(Journal(run.region(slug).journal).read().proposals.items())]


def test_a_region_knows_the_settled_trials_of_others(study, capsys):
    run = generate(study, capsys)
    assert shared(run, "germany").neighbours == () and shared(run, "germany").block == 1
    play(run, "united-kingdom", [0.3, None])
    (neighbour,) = shared(run, "germany").neighbours
    assert neighbour.name == "united-kingdom" and not neighbour.earlier
    assert [o.loss for o in neighbour.history] == [-0.3, None]  # larger is better here, smaller to the optimizer
    assert [o.point for o in neighbour.history] == points(run, "united-kingdom")
    assert shared(run, "united-kingdom").neighbours == ()  # germany has tried nothing


def test_a_script_leaves_an_index_for_others_where_regions_share(study, capsys, monkeypatch):
    monkeypatch.setattr(journal_index, "RENEWED", 1)
    run = generate(study, capsys)
    play(run, "united-kingdom", [0.3, None, 0.2, 0.1])
    folder = run.region("united-kingdom")
    with_it = shared(run, "germany").neighbours
    assert len(json.loads(folder.journal_index.read_text())["told"][0]) == 2  # of the batch before the latest
    folder.journal_index.unlink()
    assert shared(run, "germany").neighbours == with_it and len(with_it[0].history) == 4
    alone = generate(write_study(study.parent / "alone", ALONE), capsys)
    play(alone, "united-kingdom", [0.3, None, 0.2, 0.1])
    assert not alone.region("united-kingdom").journal_index.exists()


def test_a_line_that_is_being_written_and_a_damaged_journal_count_as_nothing(study, capsys):
    run = generate(study, capsys)
    play(run, "united-kingdom", [0.3, 0.2])
    journal = run.region("united-kingdom").journal
    whole = journal.read_bytes()
    journal.write_bytes(whole + b'{"event": "settled", "tri')
    assert len(shared(run, "germany").neighbours[0].history) == 2
    journal.write_bytes(b"no journal\n" + whole)
    assert shared(run, "germany").neighbours == ()
    play(run, "germany", [0.1, 0.2])  # goes on alone


@pytest.mark.parametrize(
    "line", ["  - {name: United Kingdom, data: data/uk.nc, search: {share: 'off'}}",
             "  - {name: United Kingdom, data: data/uk.nc, metric: p@5}"]
)  # fmt: skip
def test_values_that_cannot_be_compared_and_regions_that_do_not_share_are_left_out(tmp_path, capsys, line):
    text = SHARING.replace("  - {name: United Kingdom, data: data/uk.nc}", line)
    run = generate(write_study(tmp_path, text), capsys)
    folder = run.region("united-kingdom")
    Journal(folder.journal).append("proposed", trial=0, point={"hidden": 3, "learning_rate": 0.01})
    Journal(folder.journal).append("settled", trial=0, status="ok", value=0.5)
    assert shared(run, "germany").neighbours == ()
    assert (shared(run, "united-kingdom") is None) == ("off" in line)


def test_regions_that_share_start_on_different_points_and_the_same_run_the_same(study, capsys):
    run, again = generate(study, capsys), generate(study, capsys)
    for one in (run, again):
        play(one, "united-kingdom", [0.3, 0.2])
        play(one, "germany", [0.1, 0.4, 0.2, 0.3])
    assert points(run, "germany") == points(again, "germany")
    assert not any(point in points(run, "germany") for point in points(run, "united-kingdom"))


def test_the_next_run_knows_the_trials_of_the_last_ones(study, capsys):
    first = generate(study, capsys)
    play(first, "germany", [0.1, 0.4, None, 0.3])
    second = generate(study, capsys)
    assert not second.region("united-kingdom").earlier.exists()
    (neighbour,) = shared(second, "germany").neighbours
    assert neighbour.earlier and neighbour.name == first.path.name
    assert [o.loss for o in neighbour.history] == [-0.1, -0.4, None, -0.3] and neighbour.history[0].seconds == 2.0
    play(second, "germany", [0.2])
    assert points(second, "germany")[0] != points(first, "germany")[0]
    third = generate(study, capsys)
    assert [n.name for n in shared(third, "germany").neighbours] == [second.path.name, first.path.name]


def test_a_study_that_does_not_share_starts_anew(tmp_path, capsys):
    study = write_study(tmp_path, ALONE)
    play(generate(study, capsys), "germany", [0.1, 0.4])
    second = generate(study, capsys)
    assert not second.region("germany").earlier.exists() and shared(second, "germany") is None


def test_long_runs_many_runs_and_other_metrics(study, capsys):
    run = generate(study, capsys)
    folder, spec = run.region("germany"), read_spec(run.region("germany").spec)
    events = []
    for trial in range(2 * MOST):
        events += [("proposed", {"trial": trial, "point": {"hidden": 2, "learning_rate": 0.001 + trial * 1e-5}})]
        events += [("settled", {"trial": trial, "status": "ok", "value": trial / 1000})]
    Journal(folder.journal).append_all(events)
    lines = [json.loads(line) for line in find_earlier([run] * (RUNS + 2), [spec])["germany"].splitlines()]
    assert len(lines) == RUNS * MOST
    losses = [line["loss"] for line in lines[:MOST]]
    assert min(losses) == -(2 * MOST - 1) / 1000 and -0.0 in losses  # the best ones, and the first ones
    assert find_earlier([run], [replace(spec, metric=Metric("p@10"))]) == {}
    assert find_earlier([run, RunFolder(run.path / "nowhere")], [replace(spec, slug="elsewhere")]) == {}


def test_a_damaged_file_of_earlier_trials_says_what_to_do(study, capsys):
    run = generate(study, capsys)
    run.region("germany").earlier.write_text('{"run": "x", "point": {}\n')
    with pytest.raises(RegiondagError, match=r"earlier\.jsonl.*remove the file"):
        read_earlier(run.region("germany"))


def test_in_a_study_that_shares_the_model_of_all_regions_names_the_winner(study, capsys, monkeypatch):
    run = generate(study, capsys)
    assert read_spec(run.region("germany").spec).search.winner == "model"
    play(run, "united-kingdom", [0.3, 0.2, 0.25, 0.1])
    play(run, "germany", [0.3, 0.5, 0.4, 0.1])
    seen = []

    def spy(search, history, seed, shared):
        seen.append(([o.loss for o in history], [n.name for n in shared.neighbours]))
        return rank_trials(search, history, seed, shared)

    monkeypatch.setattr("regiondag.node.pre_final.rank_trials", spy)
    assert prepare_final(run.region("germany"), NodeName("germany", None))
    assert seen == [([-0.3, -0.5, -0.4, -0.1], ["united-kingdom"])]
    winner, of = Journal(run.region("germany").journal).read().won
    assert winner in range(4) and of == 4
    assert main(["study", "show", str(run.path), "Germany"]) == 0
    [line] = [line for line in capsys.readouterr().out.splitlines() if "(won)" in line]
    assert f" {winner} " in line.partition("ok (won)")[0]


def test_who_names_the_winner(tmp_path, capsys):
    spec = read_spec(generate(write_study(tmp_path / "a", STUDY), capsys).region("germany").spec)
    assert spec.search.winner == "auto"
    text = SHARING.replace("share: model", "share: model\n  winner: observed")
    spec = read_spec(generate(write_study(tmp_path / "b", text), capsys).region("germany").spec)
    assert spec.search.winner == "observed"
    text = STUDY.replace("  parallel: 2\n", "  parallel: 2\n  winner: luckiest\n")
    assert main(["validate", str(write_study(tmp_path / "c", text))]) == 2
    assert "observed, model or auto" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("method", "share", "legal"), [("sobol", "warm", "off"), ("skopt", "model", "off, warm"), ("grid", "warm", "off")]
)
def test_methods_that_cannot_share_say_so(tmp_path, capsys, method, share, legal):
    text = SHARING.replace("share: model", f"share: {share}").replace("method: bayes", f"method: {method}")
    assert main(["validate", str(write_study(tmp_path, text))]) == 2
    error = capsys.readouterr().err
    assert f"{share} is not legal with method {method}: {legal}" in error and "search.share" in error


def test_share_off_needs_no_quotes(tmp_path, capsys):
    assert main(["validate", str(write_study(tmp_path, SHARING.replace("share: model", "share: off")))]) == 0

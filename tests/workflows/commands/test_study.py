"""`regiondag study show` and `export --csv`, on runs made by the real commands and scripts."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import asdict

import pytest

from regiondag.cli import main
from regiondag.node.post import JobEnd, settle_trial
from regiondag.node.pre import prepare_trial
from regiondag.run.history import TrialOutcome
from regiondag.run.journal import Journal
from regiondag.run.layout import NodeName
from tests.workflows import shop
from tests.workflows.conftest import STUDY, write_study
from tests.workflows.generate.test_write_run import create
from tests.workflows.node.test_pre_and_post import finish

pytestmark = pytest.mark.slow

HOSTILE_NAMES = ["a; rm -rf /", 'say "hi", ok', "日本 Côte d'Ivoire", "$x$ <b>|`", "=1+1", "x" * 200]


def settle(folder, slug, number, value=None, exit_code=0, reason=None):
    """Play one trial from its PRE to its POST; a value of None is a failure."""
    node = NodeName(slug, number)
    prepare_trial(folder, node)
    if value is not None:
        finish(folder, node, value)
    if reason is not None:
        Journal(folder.journal).append("settled", **asdict(TrialOutcome(number, "diverged", reason, seconds=1.5)))
        return
    settle_trial(folder, node, JobEnd(exit_code, 2, 2))


@pytest.fixture
def run(tmp_path):
    """Germany: two good trials, one diverged, one waiting; the United Kingdom: nothing yet."""
    alone = STUDY.replace("  parallel: 2\n", "  parallel: 2\n  share: off\n")
    run = create(write_study(tmp_path, alone), tmp_path / "runs")
    folder = run.region("germany")
    settle(folder, "germany", 0, 0.25)
    settle(folder, "germany", 1, 0.5)
    settle(folder, "germany", 2, exit_code=3, reason="the loss is \x1b[2JNaN")
    prepare_trial(folder, NodeName("germany", 3))
    return run


def shown(capsys, *argv):
    capsys.readouterr()  # what making the run has printed
    assert main(["study", "show", *map(str, argv)]) == 0
    return capsys.readouterr().out


def test_the_table_has_every_trial_of_every_region(run, capsys):
    settle(run.region("united-kingdom"), "united-kingdom", 0, 0.125)
    out = shown(capsys, run.path)
    assert "4 of 8 trials settled, 1 failed, 0 pruned, 2 waiting or running" in out  # PRE proposes for a whole round
    assert all(word in out for word in ("United Kingdom", "Germany", "ndcg@5", "hidden", "learning_rate", "0.125"))
    assert "\x1b[2J" not in out and "the loss is \\x1b[2JNaN" in out


def test_json_holds_what_the_journal_holds(run, capsys):
    raw = json.loads(shown(capsys, run.path, "--json"))
    assert raw["study"] == "tiny" and raw["run"] == run.path.name
    history = Journal(run.region("germany").journal).read()
    assert [trial["trial"] for trial in raw["trials"]] == [0, 1, 2, 3]
    assert [trial["status"] for trial in raw["trials"]] == ["ok", "ok", "diverged", "running"]
    for trial in raw["trials"]:
        assert trial["hyperparameters"] == history.proposals[trial["trial"]].point
    second = raw["trials"][1]
    assert second["value"] == 0.5 and second["metrics"] == {"ndcg@5": 0.5, "p@10": 0.25}
    assert second["seconds"] == 3.0 and second["best_epoch"] == 2 and second["settled"] == history.settled_at[1]
    assert raw["trials"][3]["value"] is None and raw["trials"][3]["seconds"] is None


@pytest.mark.parametrize(
    ("argv", "order"),
    [
        ((), [0, 1, 2, 3]),
        (("--sort", "value"), [1, 0, 2, 3]),
        (("--sort", "seconds"), [0, 1, 2, 3]),
        (("--failed",), [2]),
    ],
)
@pytest.mark.parametrize("region", ["Germany", "germany"])
def test_sorted_and_filtered(run, capsys, argv, order, region):
    raw = json.loads(shown(capsys, run.path, region, "--json", *argv))
    assert [trial["trial"] for trial in raw["trials"]] == order


def test_the_smallest_loss_comes_first(tmp_path, capsys):
    run = create(write_study(tmp_path, STUDY.replace("metric: ndcg@5", "minimize: loss")), tmp_path / "runs")
    for number, value in enumerate((3.0, 1.0, 2.0)):
        settle(run.region("germany"), "germany", number, value)
    raw = json.loads(shown(capsys, run.path, "Germany", "--json", "--sort", "value"))
    assert [trial["value"] for trial in raw["trials"]] == [1.0, 2.0, 3.0, None]


def test_a_run_that_has_not_begun(study_file, tmp_path, capsys):
    run = create(study_file, tmp_path / "runs")
    assert "0 of 8 trials settled" in shown(capsys, run.path)
    assert json.loads(shown(capsys, run.path, "--json"))["trials"] == []
    assert main(["study", "export", str(run.path), "--csv", "-"]) == 0
    assert capsys.readouterr().out.count("\n") == 1


def test_a_torn_journal_is_read_up_to_the_tear(run, capsys):
    journal = run.region("germany").journal
    journal.write_bytes(journal.read_bytes() + b'{"event": "settled", "tri')
    assert json.loads(shown(capsys, run.path, "--json"))["trials"][3]["status"] == "running"


@pytest.mark.parametrize(
    ("argv", "code", "words"),
    [
        (["show", "{run}", "Germani"], 2, ["no region 'Germani'", "did you mean 'Germany'", "United Kingdom"]),
        (["show", "{run}", "Atlantis"], 2, ["no region 'Atlantis'. There are: United Kingdom, Germany"]),
        (["show", "{run}/regions"], 1, ["is not a run directory"]),
        (["export", "{run}"], 2, ["--optuna URL|FILE", "--csv FILE"]),
        (["export", "{run}", "--csv", "/nowhere/x.csv"], 1, ["/nowhere/x.csv"]),
    ],
)
def test_mistakes_say_what_is_legal(run, capsys, argv, code, words):
    assert main(["study", *(word.format(run=run.path) for word in argv)]) == code
    err = capsys.readouterr().err
    assert all(word in err for word in words) and "Traceback" not in err


@pytest.mark.parametrize("argv", [["study"], ["study", "nope"], ["study", "show", "x", "--sort", "name"]])
def test_wrong_arguments_exit_2(argv, capsys):
    with pytest.raises(SystemExit) as caught:
        main(argv)
    assert caught.value.code == 2


def test_csv_reads_back(run, tmp_path, capsys):
    file = tmp_path / "trials.csv"
    assert main(["study", "export", str(run.path), "--csv", str(file)]) == 0
    assert "4 trials" in capsys.readouterr().err
    with file.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    history = Journal(run.region("germany").journal).read()
    assert [row["status"] for row in rows] == ["ok", "ok", "diverged", "running"]
    assert float(rows[0]["hyperparameter.learning_rate"]) == history.proposals[0].point["learning_rate"]
    assert rows[1]["value"] == "0.5" and rows[1]["metrics.p@10"] == "0.25" and rows[1]["settled"].endswith("Z")
    assert rows[2]["value"] == "" and rows[2]["reason"] == "the loss is \x1b[2JNaN"


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_hostile_names(tmp_path, capsys, name):
    text = STUDY.replace("{name: Germany,", f"{{name: {json.dumps(name)},")
    run = create(write_study(tmp_path, text), tmp_path / "runs")
    [slug] = [s for s, region in json.loads(run.manifest.read_text())["regions"].items() if region == name]
    settle(run.region(slug), slug, 0, 0.5)
    settle(run.region(slug), slug, 1, exit_code=3, reason='a "reason",\nwith | signs [red]')
    out = shown(capsys, run.path, name)
    assert "[red]" in out and (len(name) > 50 or name in out)
    assert main(["study", "export", str(run.path), "--csv", "-"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert {row["region"] for row in rows} == {name}
    assert rows[1]["reason"] == 'a "reason",\nwith | signs [red]'


def test_why_a_trial_has_its_values(run, capsys):
    out = " ".join(shown(capsys, run.path, "Germany", "--why", "2-3").split())  # however a terminal folds it
    for words in (
        "Germany, trial 2: expected improvement near the best points; 2 trials were known then",
        "Germany, trial 3: lower bound, beta 2.5; 2 trials were known then",
        "best until then: trial 1",
        "expected: ndcg@5 0.",
        "came: diverged",
        "came: nothing yet, it is running",
    ):
        assert words in out
    [second] = json.loads(shown(capsys, run.path, "Germany", "--why", "1", "--json"))
    assert (second["trial"], second["source"], second["value"], second["expected"]) == (1, "sequence", 0.5, None)
    [third] = json.loads(shown(capsys, run.path, "--why", "germany_t0002", "--json"))  # by its node
    assert third["source"] == "model" and third["reproduced"] and third["expected"]["improvement"] >= 0
    assert third["best"] == 1 and third["best_value"] == 0.5 and third["status"] == "diverged"


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["Germany", "--why", "9"], ["trial 9 of Germany was not proposed", "0, 1, 2, 3"]),
        (["United Kingdom", "--why", "0"], ["none yet"]),
        (["Germany", "--why", "final"], ["the trial that won"]),
        (["Germany", "--why", "x"], ["legal: 7, 3-5, final"]),
        (["--why", "2"], ["a node is called like united-kingdom_t0007"]),
        (["--why", "Germany"], ["germany_t0007"]),
        (["Germany", "--why", "1", "--failed"], ["choose from a list"]),
    ],
)
def test_what_nobody_can_say_why_of(run, capsys, argv, words):
    assert main(["study", "show", str(run.path), *argv]) == 2
    err = capsys.readouterr().err
    assert all(word in err for word in words)


def test_many_trials_are_listed_without_a_frame(run, capsys, monkeypatch):
    monkeypatch.setattr("regiondag.util.terminal.MANY_ROWS", 2)
    lines = shown(capsys, run.path).splitlines()
    assert lines[1].split() == [
        *("region", "trial", "status", "ndcg@5", "hidden", "learning_rate", "epochs", "seconds", "reason")
    ]
    assert len(lines) == 2 + 4 and lines[3].split()[:4] == ["Germany", "1", "ok", "0.5"]


def test_which_hyperparameters_mattered(run, capsys):
    assert main(["study", "importance", str(run.path)]) == 0
    out = capsys.readouterr().out
    assert "which hyperparameters mattered" in out and "of fewer than 8 nothing can be said" in " ".join(out.split())
    assert main(["study", "importance", str(run.path), "Germany", "--json"]) == 0
    [germany] = json.loads(capsys.readouterr().out)
    assert germany["trials"] == 2 and germany["shares"] == {} and germany["note"].startswith("2 trials have succeeded")


def test_a_region_without_trials_of_its_own_says_whose_search_is_its(tmp_path, capsys):
    run = shop.generate(shop.write_shop(tmp_path))
    assert main(["study", "show", str(run.path), "Avon", "--why", "0"]) == 2
    assert "Avon has no trials of its own: its search is that of all regions; ask there" in capsys.readouterr().err

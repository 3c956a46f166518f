"""Programs of the user's as trials on a real HTCondor pool: to what serves, through evictions, and the next night."""

from __future__ import annotations

import json
import zipfile
from itertools import pairwise
from pathlib import Path

import pytest

from nnlib.epoch_log import read_epochs
from nnlib.util.packed import list_files
from regiondag.cli import main
from regiondag.run.journal import Journal
from regiondag.run.layout import NodeName, RunFolder
from tests.workflows.conftest import write_study
from tests.workflows.on_pool.test_eviction import evict, evictions
from tests.workflows.on_pool.test_study import finish, result_of, submit, summary

pytestmark = pytest.mark.condor

STUDY = """\
study: programs
regions: {from: data/*.csv}
trainer:
  command: [python, train.py, "{rate}"]
  files: [train.py, "data/{region}.csv"]
  metric: {name: auc}
  retry: [NO MEMORY]
train: {epochs: 3}
search:
  method: bayes
  rounds: 2
  parallel: 2
  space: {rate: {real: [0.01, 1.0], log: true}}
job: {gpus: 0, cpus: 1, memory: 256MB, disk: 100MB}
"""
PROGRAM = """\
import sys, time
from pathlib import Path
from regiondag.trial import load, report
trial, rate = load(), float(sys.argv[1])
top, pause = map(float, Path(f"data/{trial['region']}.csv").read_text().split(","))
state = Path(trial["checkpoint"], "epoch")
first = int(state.read_text()) + 1 if state.exists() else 1
for epoch in range(first, trial["epochs"] + 1):
    time.sleep(pause)
    state.write_text(str(epoch))
    auc = top - (rate - 0.3) ** 2 - 0.1 / epoch
    report(epoch=epoch, auc=auc, folds=[auc - 0.01, auc, auc + 0.01])
Path(trial["artifact"], "rate.txt").write_text(sys.argv[1])
"""
# Lightning's CSVLogger: a row for what is trained, and one for what is validated.
LOGGING = """\
import json, time
from pathlib import Path
from regiondag.trial import Stopping, load
trial, stopping = load(), Stopping()
log = Path("logs/version_0/metrics.csv")
log.parent.mkdir(parents=True)
log.write_text("epoch,step,loss,auc\\n")
for epoch in range(trial["epochs"]):
    time.sleep(0.5)
    with log.open("a") as file:
        file.write(f"{epoch},{epoch},0.5,\\n{epoch},{epoch},,{0.8 if epoch == 2 else 0.5}\\n")
    if stopping:
        break
told = [trial["role"], trial["epochs"], trial["seconds"]]
Path(trial["artifact"], "told").write_text(json.dumps(told))
"""


def list_files_of(run: RunFolder) -> dict[str, str]:
    with zipfile.ZipFile(run.region("north").champion_model) as model:
        return {name: model.read(name).decode() for name in model.namelist()}


def write(folder: Path, text: str = STUDY, **regions: str) -> Path:
    (folder / "data").mkdir()
    for name, line in regions.items():
        (folder / "data" / f"{name}.csv").write_text(line)
    (folder / "train.py").write_text(PROGRAM)
    return write_study(folder, text)


def generate(study: Path, capsys, *words: str) -> RunFolder:
    assert main([*(words or ("generate",)), str(study)]) == 0
    return RunFolder(Path(capsys.readouterr().out.strip()))


def test_a_program_to_what_serves_and_its_next_night(pool, run_area, capsys):
    study = write(run_area, North="0.9,0", South="0.8,0")
    run = generate(study, capsys)
    submit(run)
    status = finish(pool, run)
    assert status.exit_code == 0, (run.path / "manager.log").read_text()[-3000:]
    assert [(r.region, r.done, r.failed, r.final) for r in status.regions] == [
        ("North", 4, 0, "promoted"),
        ("South", 4, 0, "promoted"),
    ]
    rows = {row["region"]: row for row in summary(run)["regions"]}
    for name, top in (("North", 0.9), ("South", 0.8)):
        row, rate = rows[name], rows[name]["hyperparameters"]["rate"]
        assert row["test"]["auc"] == pytest.approx(top - (rate - 0.3) ** 2 - 0.1 / 3)
        assert row["of_program"] and row["customers"] == 0
        # Student's t of 2 degrees of freedom, and the error of 3 folds
        half = 4.303 * 0.01 * (1 / 3 + 1 / 2) ** 0.5
        assert row["intervals"]["auc"] == pytest.approx([row["test"]["auc"] - half, row["test"]["auc"] + half])
    values = [one.value for one in Journal(run.region("north").journal).read().settled.values()]
    assert rows["North"]["test"]["auc"] == max(values)

    capsys.readouterr()
    assert main(["verify", str(run.path)]) == 0
    assert main(["replay", str(run.path), "north", "final"]) == 0
    assert "the same, bit by bit" in capsys.readouterr().out
    assert main(["report", str(run.path)]) == 0
    out = capsys.readouterr().out
    assert "2 with the best of their trials" in out and "champion/model.zip" in out and "p@10" not in out
    assert main(["champions", "export", str(run_area), "South", "--to", str(run_area / "out")]) == 0
    files = list_files(run_area / "out")
    assert float(files["artifact/rate.txt"].read_text()) == rows["South"]["hyperparameters"]["rate"]
    capsys.readouterr()
    assert main(["recommend", str(run_area), "--region", "South", "--customer", "x"]) == 1
    assert "was made by a program, which regiondag cannot ask" in capsys.readouterr().err

    # The next night: of what has changed, and its first trial is what serves.
    (run_area / "data" / "North.csv").write_text("0.95,0")
    again = generate(study, capsys, "update")
    assert list(json.loads(again.manifest.read_text())["regions"]) == ["north"]
    submit(again)
    assert finish(pool, again).exit_code == 0
    first = Journal(again.region("north").journal).read().proposals[0].point
    assert first == {"rate": rows["North"]["hyperparameters"]["rate"]}
    chosen = json.loads(again.region("north").decisions.read_text())["common"]["reason"]
    assert chosen.startswith(("kept", "better than program, rate")), chosen


def test_a_program_that_is_evicted_goes_on_elsewhere(pool, run_area, capsys):
    text = STUDY.replace("epochs: 3", "epochs: 40").replace("rounds: 2\n  parallel: 2", "rounds: 1\n  parallel: 1")
    run = generate(write(run_area, text, North="0.9,0.2"), capsys)
    submit(run)
    node = NodeName("north", 0)
    evict(pool, run, node, 4)
    status = finish(pool, run)
    assert status.exit_code == 0
    place = run.region("north").trial(node)
    result = result_of(place)
    assert (evictions(run, node), result.epochs, len(result.curve)) == (1, 40, 40)
    log = read_epochs(place / "log.jsonl")
    assert [epoch.epoch for epoch in log] == list(range(1, 41))
    assert min(b.seconds - a.seconds for a, b in pairwise(log)) < 0, "its second start begins at 0"


def test_a_program_that_logs_to_csv_and_has_seconds_is_judged_by_its_best(pool, run_area, capsys):
    study = write(run_area, North="0.9,0")
    (run_area / "train.py").write_text(LOGGING)
    text = STUDY.replace("{name: auc}", "{name: auc, value: best, report: {csv: logs/*/metrics.csv}}\n  seconds: 8s")
    study.write_text(text.replace("epochs: 3", "epochs: 90").replace("rounds: 2", "rounds: 1"))
    run = generate(study, capsys)
    submit(run)
    assert finish(pool, run).exit_code == 0, (run.path / "manager.log").read_text()[-3000:]
    history = Journal(run.region("north").journal).read()
    for one in history.settled.values():
        assert (one.value, one.best_epoch, one.reason) == (0.8, 3, "ended after its 8 seconds")
        assert len(one.curve) > 4
    assert history.final is not None and history.final.ok
    final = result_of(run.region("north").trial(NodeName("north", None)))
    assert len(final.curve) == 3 and final.reason == "", "it has as many epochs as the best"
    assert json.loads(list_files_of(run)["told"]) == ["final", 3, 8]


def test_a_program_that_fails_is_a_failed_trial_with_its_last_line(pool, run_area, capsys):
    study = write(run_area, North="0.9,0")
    (run_area / "train.py").write_text(
        "import sys\nif float(sys.argv[1]) > 0.1:\n    raise SystemExit('rate is too high')\nprint('auc=0.5')\n"
    )
    text = STUDY.replace("real: [0.01, 1.0], log: true", "choice: [0.05, 0.5, 0.06, 0.07]").replace("bayes", "grid")
    study.write_text(text.replace("  rounds: 2\n  parallel: 2\n", ""))
    run = generate(study, capsys)
    submit(run)
    assert finish(pool, run).exit_code == 0
    ended = Journal(run.region("north").journal).read().settled.values()
    failed = [one for one in ended if not one.ok]
    assert [one.reason for one in failed] == ["the program ended with exit code 1: rate is too high"]
    assert len(ended) == 4

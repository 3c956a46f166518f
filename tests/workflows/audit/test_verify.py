"""Every kind of damage that a run directory can take is found, and said where."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from nnlib.contract import Metric, Recipe, Role, TrainSettings, Trial
from nnlib.training import checkpoint
from regiondag.audit.verify import _other
from regiondag.cli import main
from regiondag.run.history import History, Proposal
from regiondag.run.layout import RunFolder
from regiondag.run.region_spec import RegionSpec
from regiondag.study.model import Search

pytestmark = pytest.mark.slow

GERMANY = "regions/germany"
T1 = f"{GERMANY}/trials/0001"


@pytest.fixture
def run(trained, tmp_path):
    return RunFolder(shutil.copytree(trained.path, tmp_path / trained.path.name))


def verify(run, capsys):
    capsys.readouterr()
    code = main(["verify", str(run.path)])
    told = capsys.readouterr()
    return code, told.out.splitlines(), told.err


def edit(path, **values):
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def flip(path):
    """Change one bit in the middle, as a bad disk does; the length stays."""
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)


def test_a_run_that_is_whole(run, capsys):
    code, lines, told = verify(run, capsys)
    assert (code, lines) == (0, [])
    assert "5 outcomes checked: all as they were" in told


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (f"{GERMANY}/data.train.nc", "manifest.json says"),
        (f"{GERMANY}/network.json", "manifest.json says"),
        (f"{GERMANY}/region.json", ""),
        ("train.sh", "manifest.json says"),
        ("study.yaml", "manifest.json says"),
        (f"{GERMANY}/champion/model.nc", f"{GERMANY}/champion/metrics.json says"),
        (f"{GERMANY}/trials/final/model.nc", f"{GERMANY}/trials/final/result.json says"),
        (f"{T1}/result.json", ""),
    ],
)
def test_a_bit_that_flipped_is_found(run, capsys, name, said):
    flip(run.path / name)
    code, lines, _ = verify(run, capsys)
    assert code == 1 and any(line.startswith(f"{name}: ") and said in line for line in lines), lines


def test_a_changed_archive_is_found(run, capsys):
    [archive] = run.path.glob("nnlib-*.pyz")
    flip(archive)
    code, lines, told = verify(run, capsys)
    assert code == 1 and len(lines) == 1 and lines[0].startswith(f"{archive.name}: has the sha256 ")
    assert "1 not as they were" in told


@pytest.mark.parametrize(
    "name",
    [f"{GERMANY}/data.test.nc", f"{T1}/result.json", f"{T1}/trial.json", f"{GERMANY}/trials/final/model.nc", "pre.sh",
     f"{GERMANY}/champion/model.nc", f"{GERMANY}/champion/metrics.json", f"{GERMANY}/region.json"],
)  # fmt: skip
def test_what_is_missing_is_found(run, capsys, name):
    (run.path / name).unlink()
    code, lines, _ = verify(run, capsys)
    assert code == 1 and any(line.startswith(f"{name}: ") for line in lines)


def test_a_result_that_was_edited_is_found_by_its_figures_and_by_its_digest(run, capsys):
    edit(run.path / T1 / "result.json", value=0.99)
    code, lines, _ = verify(run, capsys)
    assert code == 1 and len(lines) == 2
    assert "says value 0.99, the journal says" in lines[0] and "trial rerun" in lines[0]
    assert "trials.jsonl says" in lines[1]


def test_a_journal_of_before_results_had_digests_is_checked_by_its_figures(run, capsys):
    journal = run.region("germany").journal
    records = [json.loads(line) for line in journal.read_text().splitlines()]
    for record in records:
        record.pop("result", None)
        record.pop("after", None)
    journal.write_text("".join(json.dumps(record) + "\n" for record in records))
    assert verify(run, capsys)[0] == 0
    edit(run.path / T1 / "result.json", status="pruned")
    assert verify(run, capsys)[0] == 1


def test_a_region_may_be_served_by_what_its_last_job_was_compared_with(run, capsys):
    """Its journal then has the figures of popularity, say; others are found."""
    journal = run.region("germany").journal
    records = [json.loads(line) for line in journal.read_text().splitlines()]
    [settled] = [record for record in records if record["event"] == "settled" and record["trial"] is None]
    last = json.loads((run.path / GERMANY / "trials/final/result.json").read_text())
    for metrics, code in ((last["baseline"], 0), (last["baseline"] | {"loss": 0.5}, 1)):
        settled["metrics"] = metrics
        journal.write_text("".join(json.dumps(record) + "\n" for record in records))
        assert verify(run, capsys)[0] == code


def test_a_trial_that_is_not_what_was_proposed(run, capsys):
    path = run.path / T1 / "trial.json"
    raw = json.loads(path.read_text())
    path.write_text(json.dumps(raw | {"hyperparameters": {"hidden": 999}, "sha256": {"network.json": "0" * 64}}))
    code, lines, _ = verify(run, capsys)
    assert code == 1 and "says hidden 999, the journal proposed" in "\n".join(lines)
    assert "wants sha256 000000000000 of network.json" in "\n".join(lines)


def test_a_journal_that_was_edited(run, capsys):
    journal = run.region("germany").journal
    journal.write_text("no journal\n" + journal.read_text())
    code, lines, _ = verify(run, capsys)
    assert code == 1 and lines[0].startswith(f"{GERMANY}/trials.jsonl:1: not a line of a journal")


def test_region_json_that_wants_other_data(run, capsys):
    path = run.region("germany").spec
    raw = json.loads(path.read_text())
    raw["sha256"]["data.train.nc"] = "0" * 64
    path.write_text(json.dumps(raw))
    code, lines, _ = verify(run, capsys)
    assert code == 1 and any("says sha256 000000000000 of data.train.nc, manifest.json says" in line for line in lines)


def test_checkpoints_are_checked_by_their_own_digest(run, capsys):
    path = run.path / T1 / "checkpoint.nc"
    path.write_bytes(b"")
    assert verify(run, capsys)[0] == 0
    checkpoint.write(path, {"weights": np.arange(1000, dtype=np.float32)}, {"epoch": 1}, "training")
    assert verify(run, capsys)[0] == 0
    raw = path.read_bytes()
    at = raw.index(np.arange(500, 502, dtype="<f4").tobytes())
    path.write_bytes(raw[: at + 2] + b"\x00" + raw[at + 3 :])
    code, lines, _ = verify(run, capsys)
    assert code == 1 and lines[0].startswith(f"{T1}/checkpoint.nc: ") and "SHA-256" in lines[0]


def test_a_checkpoint_that_goes_while_it_is_looked_at_is_no_finding(run, capsys, monkeypatch):
    path = run.path / T1 / "checkpoint.nc"
    path.write_bytes(b"x")

    def gone(_path):
        path.unlink()
        raise FileNotFoundError(path)

    monkeypatch.setattr("regiondag.commands.verify.check_checkpoint", gone)
    assert verify(run, capsys)[0] == 0 and not path.exists()


def test_a_manifest_that_points_elsewhere_reads_nothing_there(run, capsys, tmp_path):
    raw = json.loads(run.manifest.read_text())
    raw["sha256"] |= {"../secret": "0" * 64, "/etc/passwd": "0" * 64}
    run.manifest.write_text(json.dumps(raw))
    code, lines, _ = verify(run, capsys)
    assert code == 1 and sum("outside of the run" in line for line in lines) == 2 and len(lines) == 2


def test_no_run_directory(tmp_path, capsys):
    assert main(["verify", str(tmp_path)]) == 1
    assert "is not a run directory" in capsys.readouterr().err


def test_what_a_trial_fits_is_the_recipe_that_was_proposed():
    ease = Recipe("ease", {"l2": 300.0})
    trial = Trial("all_t0001", "all", 1, Role.TUNE, "", {}, TrainSettings(), Metric(), ("data.train.nc",), recipe=ease)
    spec = RegionSpec("s", "all", "all", Metric(), TrainSettings(), Search("bayes", (), (2,)), (), {}, incumbent=ease)

    def seen(point, recipe):
        return list(_other(replace(trial, recipe=recipe), spec, History(proposals={1: Proposal(1, point)})))

    assert seen({"family": "ease", "ease_l2": 300.0}, ease) == []
    assert seen({"family": "incumbent"}, ease) == [] == seen({"family": "network", "seed": 1}, None)
    assert seen({"family": "ease", "ease_l2": 30.0}, ease) == ["says ease_l2 300.0, the journal proposed 30.0"]
    assert seen({"family": "blend"}, ease) == ["says family 'ease', the journal proposed 'blend'"]
    assert len(seen({"family": "incumbent"}, Recipe("knn"))) == 1

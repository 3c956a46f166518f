"""Files that programs write of their metric, as far as they are written, and whatever is in them."""

from __future__ import annotations

import math
import os
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnlib.worker.metric_files import MOST_BYTES, MOST_FILES, MetricFiles
from nnlib.worker.reports import MOST_FIGURES, Report
from tests.nnlib.worker.test_event_file import event, record

LIGHTNING = "epoch,step,train_loss,val_auc\r\n0,4,0.7,\r\n0,4,,0.5\r\n1,9,0.6,\r\n1,9,,0.75\r\n"


def files(folder, kind="csv", pattern="logs/*/metrics.csv", metric="val_auc"):
    return MetricFiles(folder, kind, pattern, metric)


def write(folder, text, name="logs/version_0/metrics.csv", mode="w"):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open(mode, newline="", errors="surrogateescape") as file:
        file.write(text)
    return path


def said(reports):
    return [(one.epoch, *one.figures.values()) for one in reports]


def now(one, **how):
    one.looked = -math.inf
    return one.look(**how)


def test_lightnings_rows_say_the_metric_in_some_and_a_torn_line_waits(tmp_path):
    one = files(tmp_path)
    assert one.look(ended=True) == []
    write(tmp_path, LIGHTNING[:-4])
    assert now(one) == [Report({"step": 4, "val_auc": 0.5}, 0)] and now(one) == [] and one.look() == []
    write(tmp_path, LIGHTNING[-4:], mode="a")
    assert now(one) == [Report({"step": 9, "val_auc": 0.75}, 1)]


def test_keras_rows_are_epochs_and_a_header_alone_is_nothing(tmp_path):
    one = files(tmp_path, pattern="log.csv")
    write(tmp_path, "epoch,auc,loss,val_auc\n", "log.csv")
    assert now(one) == [] and "auc, epoch, loss, val_auc" in one.say_where()
    write(tmp_path, "0,0.5,0.9,0.25\n1,0.5,0.8,nan\n", "log.csv", "a")
    assert said(now(one)) == [(0, 0.5, 0.9, 0.25), (1, 0.5, 0.8, pytest.approx(math.nan, nan_ok=True))]


def test_a_file_that_is_written_anew_with_another_column_says_only_what_is_new(tmp_path):
    one = files(tmp_path)
    write(tmp_path, LIGHTNING)
    assert len(now(one)) == 2
    rows = LIGHTNING.replace("\r\n", ",\r\n").replace("val_auc,", "val_auc,test_auc")
    write(tmp_path, rows + "2,14,,0.8,\r\n")
    assert now(one) == [Report({"step": 14, "val_auc": 0.8}, 2)]


def test_what_lay_there_before_was_reported_before(tmp_path):
    write(tmp_path, LIGHTNING)
    one = files(tmp_path)
    write(tmp_path, "2,14,,0.8\r\n", mode="a")
    write(tmp_path, "epoch,val_auc\n3,0.9\n", "logs/version_1/metrics.csv")
    assert [report.epoch for report in now(one)] == [2, 3]


def test_without_epochs_each_row_stands_for_one(tmp_path):
    one = files(tmp_path, pattern="*.csv")
    write(tmp_path, "val_auc,note\n0.5,a\n0.6,b\n", "x.csv")
    assert said(now(one)) == [(None, 0.5), (None, 0.6)]


def test_links_pipes_and_what_lies_outside_are_not_read(tmp_path):
    (tmp_path / "in").mkdir()
    outside = write(tmp_path, LIGHTNING, "out/metrics.csv")
    (tmp_path / "in" / "metrics.csv").symlink_to(outside)
    (tmp_path / "in" / "a").symlink_to(outside.parent)
    os.mkfifo(tmp_path / "in" / "p.csv")
    assert not [*files(tmp_path / "in", pattern="*.csv").tails, *files(tmp_path / "in", pattern="*/*.csv").tails]


def test_much_is_bounded(tmp_path):
    for number in range(MOST_FILES + 5):
        write(tmp_path, "val_auc\n", f"{number}.csv")
    one = files(tmp_path, pattern="*.csv")
    assert len(one.tails) == MOST_FILES and f"{MOST_FILES} files" in one.say_where()
    wide = files(tmp_path, pattern="wide/a.csv")
    names = [f"c{number}" for number in range(200)]
    write(tmp_path, ",".join([*names, "val_auc"]) + "\n" + ",".join(["1"] * 201) + "\n", "wide/a.csv")
    [report] = now(wide)
    assert len(report.figures) <= MOST_FIGURES + 1 and report.figures["val_auc"] == 1
    long = files(tmp_path, pattern="long/a.csv")
    write(tmp_path, "val_auc\n" + "1" * (MOST_BYTES + 10) + "\n0.5\n", "long/a.csv")
    assert [report.figures["val_auc"] for report in now(long, ended=True)][-1] == 0.5


def test_mlflows_steps_are_epochs_unless_epochs_stand_beside_them(tmp_path):
    one = files(tmp_path, "mlflow", "mlruns")
    write(tmp_path, "1700 0.5 0\n1701 0.6 1\n1702 0.", "mlruns/0/abc/metrics/val_auc")
    assert said(now(one)) == [(0, 0.5), (1, 0.6)]
    other = files(tmp_path, "mlflow", "*uns", "val/auc")
    write(tmp_path, "1700 0.5 99\n1701 0.6 199\n", "mlruns/0/def/metrics/val/auc")
    write(tmp_path, "1700 0 99\n1701 1 199\n", "mlruns/0/def/metrics/epoch")
    assert said(now(other)) == [(0, 0.5), (1, 0.6)]


def test_tensorboards_scalars_wait_for_their_epoch(tmp_path):
    one = files(tmp_path, "tensorboard", "runs", "auc")
    path = write(tmp_path, "", "runs/a/events.out.tfevents.1.host")
    path.write_bytes(record(event(49, auc=0.5)) + record(event(49, epoch=0)) + record(event(99, auc=0.75)))
    assert said(now(one)) == [(0, 0.5)] and now(one) == []
    with path.open("ab") as file:
        file.write(record(event(99, epoch=1)) + record(event(99, loss=1))[:-1])
    assert said(now(one)) == [(1, 0.75)] and one.say_where().endswith("auc, epoch")
    steps = files(tmp_path, "tensorboard", "steps", "auc")
    path = write(tmp_path, "", "steps/events.out.tfevents.1.host")
    path.write_bytes(record(event(1, auc=0.5)) + record(event(2, auc=0.25)))
    assert said(now(steps)) == [(1, 0.5), (2, 0.25)]


@given(st.binary(max_size=300), st.sampled_from(["csv", "mlflow", "tensorboard"]))
def test_whatever_is_there_is_read_without_an_error(tmp_path_factory, data, kind):
    folder = tmp_path_factory.mktemp("any")
    name = {"csv": "a.csv", "mlflow": "s/0/1/metrics/val_auc", "tensorboard": "r/x.tfevents.1"}[kind]
    one = files(folder, kind, {"csv": "a.csv", "mlflow": "s", "tensorboard": "r"}[kind])
    write(folder, "", name).write_bytes(b"val_auc,epoch\n" * (kind == "csv") + data)
    for report in [*now(one), *now(one, ended=True)]:
        assert "val_auc" in report.figures and len(report.figures) <= MOST_FIGURES + 1


@given(st.lists(st.tuples(st.integers(0, 50), st.floats(0, 1)), max_size=20), st.randoms(use_true_random=False))
def test_in_whatever_pieces_a_file_comes_each_row_is_read_once(tmp_path_factory, rows, chance: random.Random):
    folder = tmp_path_factory.mktemp("pieces")
    text = "epoch,val_auc\n" + "".join(f"{epoch},{value!r}\n" for epoch, value in rows)
    one, found = files(folder, pattern="a.csv"), []
    while text:
        size = chance.randint(1, len(text))
        write(folder, text[:size], "a.csv", "a")
        text = text[size:]
        found += said(now(one))
    assert found == rows

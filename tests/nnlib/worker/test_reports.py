from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnlib.contract import MOST_CASES, Metric
from nnlib.worker.reports import MOST_FIGURES, Report, parse_line, parse_record, stderr_of

AUC = Metric("auc")


@pytest.mark.parametrize(
    ("line", "figures", "epoch"),
    [
        ("auc=0.91", {"auc": 0.91}, None),
        ("epoch=3 loss=0.25 auc=0.91\n", {"loss": 0.25, "auc": 0.91}, 3),
        ("[12:00] Epoch: 4, val_loss: 1e-3, auc: .5", {"auc": 0.5, "val_loss": 0.001}, 4),
        ("epoch 3: loss=0.2, auc=0.91", {"loss": 0.2, "auc": 0.91}, 3),
        ("Epoch 3/10 auc=1", {"auc": 1.0}, 3),
        (" ".join(f"s{n}=1" for n in range(99)) + " auc=0.25", None, None),
        ("auc = -1.5e+2", {"auc": -150.0}, None),
        ("(auc=1)", {"auc": 1.0}, None),
        ("epoch=1.5 auc=2", {"auc": 2.0}, None),
        ("epoch=-1 auc=2", {"auc": 2.0}, None),
        ("auc: 93.5%", {"auc": 93.5}, None),
    ],
)
def test_lines_that_programs_print(line, figures, epoch):
    report = parse_line(line, AUC)
    assert report is not None and report.epoch == epoch
    assert report.figures == figures if figures else len(report.figures) == MOST_FIGURES


@pytest.mark.parametrize("line", ["", "loss=1", "val_auc=1", "auc=", "auc=high", "auc=1.2.3", "AUC=1", "auc=1,234.5"])
def test_lines_that_say_nothing_of_the_metric(line):
    assert parse_line(line, AUC) is None


def test_what_is_not_finite_is_said_so():
    for word in ("nan", "inf", "-Infinity"):
        report = parse_line(f"auc={word}", AUC)
        assert report is not None and not math.isfinite(report.figures["auc"])


def test_a_standard_error_stands_beside_the_metric():
    assert parse_record('{"auc": 0.5, "stderr": 0.01}', AUC) == Report({"auc": 0.5}, None, 0.01)
    assert parse_line("auc=0.5 stderr=0.01", AUC) == Report({"auc": 0.5}, None, 0.01)
    assert parse_record('{"auc": 0.5, "stderr": -1}', AUC) == Report({"auc": 0.5})
    assert parse_record('{"loss": 0.5}', AUC) is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "an object of 64 figures"),
        ('{"auc": "1"}', "legal: a name and a number"),
        ('{"auc": true}', "legal: a name and a number"),
        ('{"a b": 1, "auc": 1}', "legal: a name and a number"),
        ("{" + ",".join(f'"a{n}":1' for n in range(MOST_FIGURES + 1)) + "}", "an object of 64 figures"),
        ("[" * 100_000, "too deep"),
        ("{", "Expecting"),
    ],
)
def test_records_that_are_none(text, said):
    with pytest.raises(ValueError, match=said):
        parse_record(text, AUC)


def test_a_whole_number_of_hundreds_of_digits_is_infinite():
    assert parse_record('{"auc": 1' + "0" * 400 + "}", AUC) == Report({"auc": math.inf})


@given(st.text(max_size=200))
def test_any_line_is_read_or_passed_over(line):
    report = parse_line(line, AUC)
    assert report is None or "auc" in report.figures


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(0, 1000))
def test_what_python_prints_of_a_number_is_read_back(value, epoch):
    assert parse_line(f"epoch={epoch} auc={value}", AUC) == Report({"auc": value}, epoch)


def test_a_list_of_folds_or_of_values_says_the_mean_and_how_sure_it_is():
    folds = parse_record('{"folds": [0.5, 0.7, 0.9]}', Metric("auc"))
    assert folds is not None and folds.figures == {"auc": pytest.approx(0.7)} and folds.folds
    assert folds.stderr == pytest.approx(0.2 * (1 / 3 + 1 / 2) ** 0.5)
    values = parse_record('{"auc": 0.6, "values": [0.5, 0.7, 0.9], "loss": 1}', Metric("auc"))
    assert values is not None and values.figures == {"auc": 0.6, "loss": 1.0} and values.cases == (0.5, 0.7, 0.9)
    assert values.stderr == pytest.approx(0.2 / 3**0.5) and not values.folds
    given = parse_record('{"values": [0.5, 0.7], "stderr": 0.3}', Metric("auc"))
    assert given is not None and given.stderr == 0.3
    number = parse_record('{"auc": 1, "folds": 5}', Metric("auc"))
    assert number is not None and number.figures == {"auc": 1.0, "folds": 5.0} and number.cases == ()
    one = parse_record('{"folds": [0.5]}', Metric("auc"))
    assert one is not None and one.stderr is None


@pytest.mark.parametrize(
    "text",
    [
        '{"folds": []}',
        '{"folds": [1, "a"]}',
        '{"folds": [1, true]}',
        '{"values": [NaN]}',
        '{"values": [1e999]}',
        '{"folds": [1], "values": [1]}',
        '{"others": [1, 2]}',
        f'{{"values": {[1] * (MOST_CASES + 1)}}}',
    ],
)
def test_lists_that_are_none_are_refused(text):
    with pytest.raises(ValueError, match="legal"):
        parse_record(text, Metric("auc"))


@given(st.lists(st.floats(-1e100, 1e100), min_size=2, max_size=30), st.booleans())
def test_a_standard_error_is_that_of_numpy_and_of_folds_is_larger(cases, folds):
    n = len(cases)
    expected = float(np.std(cases, ddof=1)) * (1 / n + folds / (n - 1)) ** 0.5
    assert stderr_of(cases, folds=folds) == pytest.approx(expected, rel=1e-6, abs=1e-9 * max(map(abs, cases)))

"""`regiondag init --data`, as a person types it."""

import json
import os
import pty
from pathlib import Path

import pytest

from regiondag.cli import main
from tests.nnlib.importing.sniffing.test_look import ROWS, text_of

AMBIGUOUS = text_of([(*row[:3], "03/04/2025") for row in ROWS], ["store", "client", "sku", "when"])


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sales.csv").write_text(text_of())
    (tmp_path / "us.csv").write_text(AMBIGUOUS)
    return tmp_path


def test_a_study_of_a_table(folder, capsys):
    assert main(["init", "--data", "sales.csv", "shop"]) == 0
    printed = capsys.readouterr()
    assert printed.out == "shop/study.yaml\n"
    assert "sales.csv: 60 rows" in printed.err and "regiondag run shop" in printed.err
    assert max(map(len, printed.err.splitlines()[:-1])) <= 80
    assert main(["init", "--data", "sales.csv", "shop"]) == 2
    assert "shop exists and is not an empty folder" in capsys.readouterr().err
    assert main(["init", "-q", "--data", "sales.csv", "other"]) == 0
    assert capsys.readouterr().err == ""


def test_columns_by_name_and_a_path_that_needs_quotes(folder, capsys):
    (folder / "my sales: 'all'.csv").write_text(AMBIGUOUS)
    words = ["--region", "store", "--customer", "client", "--item", "sku", "--time", "when", "--dates", "%d/%m/%Y"]
    assert main(["init", "--data", "my sales: 'all'.csv", *words, "shop"]) == 0
    assert "\"../my sales: 'all'.csv\"" in (folder / "shop" / "study.yaml").read_text()
    assert "named by you" in capsys.readouterr().err


def test_json_and_a_dry_run(folder, capsys):
    assert main(["init", "--data", "sales.csv", "--dry-run", "--json", "shop"]) == 0
    seen = json.loads(capsys.readouterr().out)
    assert (seen["rows"], seen["customers"], seen["items"], seen["sampled_rows"]) == (60, 7, 5, 0)
    assert seen["regions"] == [{"name": "N", "customers": 7, "rows": 60}] and len(seen["sample"]) == 5
    assert not (folder / "shop").exists()


def test_what_is_ambiguous_is_refused_with_what_to_type(capsys):
    assert main(["init", "--data", "us.csv", "shop"]) == 1
    error = capsys.readouterr().err
    assert "us.csv: when: '03/04/2025' may be several days" in error
    assert "--dates %d/%m/%Y   03/04/2025 is day/month/year" in error and "--dates %m/%d/%Y" in error


@pytest.mark.parametrize(("typed", "code"), [("2\n", 0), ("x\n1\n", 0), ("7\n8\n9\n", 1)])
def test_what_is_ambiguous_is_asked_on_a_terminal(folder, monkeypatch, typed, code):
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "r", encoding="utf-8") as stdin, Path(os.ttyname(theirs)).open("w") as stderr:
        os.write(ours, typed.encode())
        monkeypatch.setattr("sys.stdin", stdin)
        monkeypatch.setattr("sys.stderr", stderr)
        assert main(["init", "--data", "us.csv", "shop"]) == code
    os.close(ours)
    if not code:
        form = "%m/%d/%Y" if typed[0] == "2" else "%d/%m/%Y"
        assert f'dates: "{form}"' in (folder / "shop" / "study.yaml").read_text()


@pytest.mark.parametrize(
    ("argv", "code", "said"),
    [
        (["--data", "none.csv", "shop"], 1, "none.csv"),
        (
            ["--data", "sales.csv", "--region", "country", "shop"],
            1,
            "no column 'country' (--region), there are: region, customer",
        ),
        (["--data", "sales.csv", "--region", "region", "--one-region", "shop"], 2, "--one-region: not with --region"),
        (["--data", "sales.csv", "retail", "shop"], 2, "with --data there is one argument"),
        (["retail", "shop", "--region", "region"], 2, "--region: only with --data PATH"),
        (["retail"], 2, "required: DIR"),
    ],
)
def test_refusals(argv, code, said, capsys):
    try:
        assert main(["init", *argv]) == code
    except SystemExit as end:
        assert end.code == code
    assert said in capsys.readouterr().err


def test_a_file_that_may_not_be_read(folder, capsys, monkeypatch):
    if os.geteuid() == 0:
        pytest.skip("root may read all")
    (folder / "sales.csv").chmod(0)
    assert main(["init", "--data", "sales.csv", "shop"]) == 1
    assert "sales.csv" in capsys.readouterr().err


def test_the_study_is_imported_as_it_was_seen(folder, capsys):
    """What init counts is what an import of the study's data finds."""
    from regiondag.generate.fresh_data import refresh_data

    rows = [(*row, n % 3 - 1) for n, row in enumerate(ROWS * 9)]
    (folder / "sales.csv").write_text(text_of(rows, ["Store", "Client", "SKU", "When", "Qty"], ";"), encoding="utf-16")
    assert main(["init", "--data", "sales.csv", "shop"]) == 0
    assert "360 rows whose Qty is 0 or below" in capsys.readouterr().err
    study = folder / "shop" / "study.yaml"
    study.write_text(study.read_text().replace("data:", "data:\n  split: {min_history: 1}"))
    try:
        refresh_data(study)
    except Exception as error:
        assert "nobody can be asked" in str(error)
    assert "left out: 360 rows whose Qty is 0 or below" in capsys.readouterr().err

"""`nnlib recommend`, as the jobs of many customers run it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from nnlib.contract import Recipe, sha256_of
from nnlib.families.fit import fit_recipe
from nnlib.families.model_file import write_recipe_model
from nnlib.prediction.recommender import NOTHING_KNOWN, open_recommender
from regiondag.generate.bundle import pack_worker
from tests.nnlib.prediction.test_recommender import ASKED, BLEND, EMPTY, write
from tests.nnlib.test_cli import nnlib  # noqa: F401


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(Path("data.nc"))
    write_recipe_model(Path("model.nc"), fit_recipe(BLEND, ASKED))
    write_recipe_model(Path("floor.nc"), fit_recipe(Recipe("popularity", {}, 1), ASKED))


def rows_of(path):
    return duckdb.connect().execute("SELECT * FROM read_parquet(?)", [str(path)]).fetchall()


def expected(customers, k, **keys):
    region = open_recommender(Path("model.nc"), Path("data.nc"), Path("floor.nc"))
    return [
        ("Côte-d'Ivoire", answer.customer, rank, one.item, one.score, answer.by)
        for answer in region.recommend([region.customers[n] for n in customers], k, **keys)
        for rank, one in enumerate(answer.items, 1)
    ]


NAME = " --region Côte-d'Ivoire "


def test_the_file_has_what_a_recommender_says(nnlib):  # noqa: F811
    assert nnlib(f"recommend model.nc data.nc -k 5 --floor floor.nc --out all.parquet{NAME}--report all.json")[0] == 0
    assert rows_of("all.parquet") == expected(range(300), 5)
    facts = json.loads(Path("all.json").read_text())
    assert facts["sha256"] == sha256_of(Path("all.parquet"))
    assert (facts["customers"], facts["by_popularity"]) == (300, 1)
    assert facts["rows"] == len(rows_of("all.parquet"))
    assert {row[5] for row in rows_of("all.parquet")} == {"a blend of ease, popularity", NOTHING_KNOWN}
    assert nnlib(f"recommend model.nc data.nc -k 5 --floor floor.nc --out three.parquet{NAME}--threads 3")[0] == 0
    assert sha256_of(Path("three.parquet")) == facts["sha256"]


def test_some_customers_and_filters(nnlib):  # noqa: F811
    Path("never.txt").write_text("i0\n\ni1\nunheard of\n")
    line = f"recommend model.nc data.nc -k 4 --customers 2-5 --exclude none --never never.txt --out some.parquet{NAME}"
    assert nnlib(line)[0] == 0
    assert rows_of("some.parquet") == expected(range(2, 6), 4, owned=True, never=("i0", "i1"))
    Path("only.txt").write_text("i3\ni4\n")
    assert nnlib(f"recommend model.nc data.nc --only only.txt --customers 3-3 --out some.parquet{NAME}")[0] == 0
    assert rows_of("some.parquet") == expected([EMPTY], 10, only=["i3", "i4"])


def test_what_is_wrong_is_said_and_nothing_is_written(nnlib):  # noqa: F811
    Path("none.txt").write_text("\n")
    Path("strange.txt").write_text("x\n")
    for line, code, said in (
        ("--customers 5-300", 4, "--customers: 5-300 is not legal, legal: 0-299, as data.nc has them"),
        ("--only none.txt", 4, "none.txt: no id in it, legal: one a line"),
        ("--only strange.txt", 4, "only: none of 1 items is known, legal: some of the model's 24 items"),
        ("--customers 5-2", 2, "'5-2' is not legal, legal: numbers of customers from 0"),
        ("-k 0", 2, "legal: a whole number from 1"),
        ("--report x.parquet", 4, "--report: x.parquet is an input of this command"),
    ):
        found, _, err = nnlib(f"recommend model.nc data.nc --out x.parquet {line}")
        assert (found, said in err) == (code, True), err
    assert not Path("x.parquet").exists()


def test_it_runs_from_the_archive_of_the_jobs_with_what_workers_have(tmp_path):
    """No table library, no rich: NumPy, SciPy and netCDF4 alone."""
    archive = pack_worker()
    Path(archive.name).write_bytes(archive.content)
    hide = "import sys; sys.modules.update(dict.fromkeys(('duckdb', 'rich', 'numba', 'threadpoolctl')))"
    Path("sitecustomize.py").write_text(hide)
    argv = [sys.executable, archive.name, "recommend", "model.nc", "data.nc", "--out", "x.parquet"]
    done = subprocess.run(
        argv, env={"PYTHONPATH": str(tmp_path), "HOME": str(tmp_path)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert len(rows_of("x.parquet")) > 1000

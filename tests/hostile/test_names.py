"""Regions whose names mean something to pages, shells, tables or templates are shown and taken for nothing."""

from __future__ import annotations

import csv
import io
import json
import re

import pytest

from nnlib.contract import Status
from regiondag.cli import main
from regiondag.node.post import JobEnd, settle_trial
from regiondag.node.pre import prepare_trial
from regiondag.run.layout import NodeName
from tests.hostile.inputs import REGION_NAMES
from tests.hostile.running import STEERS
from tests.workflows.conftest import STUDY, write_study
from tests.workflows.generate.test_write_run import create
from tests.workflows.played import play_job

FIRST = "  - {name: United Kingdom, data: data/uk.nc}\n"
READERS = (
    ("status",),
    ("status", "--json"),
    ("verify",),
    ("stats",),
    ("report",),
    ("report", "--json"),
    ("explain",),
    ("study", "show"),
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Return a run with a trial that went well in each region, and one that failed."""
    place = tmp_path_factory.mktemp("names")
    regions = "".join(f"  - {{name: {json.dumps(name)}, data: data/uk.nc}}\n" for name in REGION_NAMES)
    run = create(write_study(place, STUDY.replace(FIRST, regions)), place / "runs")
    for slug in json.loads(run.manifest.read_text())["regions"]:
        for number in range(2):
            node = NodeName(slug, number)
            prepare_trial(run.region(slug), node)
            play_job(run.region(slug), node, 0.3, **({"status": Status.DIVERGED, "reason": "<b>"} if number else {}))
            settle_trial(run.region(slug), node, JobEnd(3 if number else 0, 1, 2, job=f"{number}.0"))
    return run


@pytest.mark.parametrize("words", READERS, ids=" ".join)
def test_a_reader_steers_nothing(run, capsys, words):
    verb, rest = (words[:2], words[2:]) if words[0] == "study" else (words[:1], words[1:])
    code = main([*verb, str(run.path), *rest])
    said = "".join(capsys.readouterr())
    assert code in (0, 1) and not STEERS.search(said), said
    if words == ("status", "--json"):
        assert set(REGION_NAMES) <= {one["region"] for one in json.loads(said)["regions"]}


def test_a_page_shows_them_and_runs_none(run, capsys):
    assert main(["report", str(run.path)]) == 1  # nothing is decided yet
    capsys.readouterr()
    page = (run.path / "report/index.html").read_text()
    for name in REGION_NAMES:
        assert "<" not in name or name not in page
    assert not re.search(r'href="javascript:', page)


def test_a_table_has_them_to_the_letter(run, tmp_path, capsys):
    assert main(["study", "export", str(run.path), "--csv", str(tmp_path / "t.csv")]) == 0
    capsys.readouterr()
    rows = list(csv.DictReader(io.StringIO((tmp_path / "t.csv").read_text())))
    assert set(REGION_NAMES) <= {row["region"] for row in rows}


def test_what_htcondor_reads_has_them_as_texts(run):
    for path in run.path.rglob("*.sub"):
        text = path.read_text()
        assert "1234321" not in text and "$(HOME)" not in text and "$ENV(" not in text
        assert not any(line.startswith("queue 1000") for line in text.splitlines())

"""The first of the README's two commands, in a fresh clone with an environment and a pool of its own."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from regiondag.pool import lifecycle
from regiondag.pool.pool import NAME_VARIABLE
from tests.support.checkout import copy_of_the_tree

pytestmark = [pytest.mark.condor, pytest.mark.slow, pytest.mark.timeout(900)]


def test_a_fresh_clone_comes_to_champions(run_area):
    name = f"pytest-quickstart-{os.getpid()}"
    example = copy_of_the_tree(run_area) / "workflows/examples/retail/study.yaml"
    text = example.read_text()
    assert "rounds: 4," in text
    example.write_text(text.replace("rounds: 4,", "rounds: 1,"))  # another round shows nothing that the first does not
    environment = {**os.environ, "COLUMNS": "80", NAME_VARIABLE: name}
    try:
        done = subprocess.run(
            ["scripts/quickstart"], cwd=run_area, env=environment, capture_output=True, text=True, check=False
        )
    finally:
        lifecycle.down(name, print, purge=True)
    assert done.returncode == 0, done.stdout + done.stderr
    page = re.search(r"^Page: (.+)$", done.stdout, re.MULTILINE)
    assert page and Path(page[1]).match(f"{run_area}/retail/runs/run-retail-*/report/index.html")
    run = Path(page[1]).parents[1]
    models = {path.parents[1].name for path in run.glob("regions/*/champion/model.nc")}
    assert len(models) == 42 and {"united-kingdom", "united-arab-emirates", "pooled"} <= models
    assert "recent popularity" in done.stdout
    for region, customers in (("Belgium", 8), ("United Kingdom", 1133), ("all regions", 1248)):
        assert re.search(rf"{region} +│ +{customers} │", done.stdout), done.stdout
    assert re.search(r"^\d+ regions have no customers to judge by, and no row: ", done.stdout, re.MULTILINE)
    assert "regiondag recommend retail --region France --customer 12583" in done.stderr
    table = done.stdout.partition("France, customer 12583: by ")[2]
    assert len(re.findall(r"^│ +\d+ │", table, re.MULTILINE)) == 10, done.stdout

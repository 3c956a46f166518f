"""Every command that prints a table, on terminals of 60 to 200 columns: nothing is wider, and no figure is cut."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import pytest

import nnlib.cli
import regiondag.cli
from nnlib.util.terminal import measure
from regiondag.fleet.status import HEADINGS, NARROW, FleetStatus, InstanceRow, table_rows
from regiondag.pool.status import PoolSlot, PoolStatus
from regiondag.run.layout import RunFolder
from regiondag.util.terminal import print_table
from tests.support.made_up_run import Shape, make_attempts, write_logs, write_run
from tests.support.pty_terminal import see
from tests.workflows import shop

pytestmark = pytest.mark.slow

WIDTHS = (60, 80, 120, 200)
NAMES = ("United Arab Emirates", "Côte d'Ivoire", "日本の北の大きな店", "a; rm -rf /")
PATH = re.compile(r"\S*/\S*")  # which nobody can fold
FIGURE = re.compile(r"(?<![\w.])[0-9]\.[0-9]{3,4}\b|[0-9]+-[0-9]{2}-[0-9]{2}|± \.[0-9]{3} \([0-9,]+\)")


@pytest.fixture(scope="module")
def networks(tmp_path_factory) -> RunFolder:
    """A made-up run of networks in regions with long names, with its jobs' logs."""
    shape = Shape(regions=6, trials=8, epochs=3, slots=8)
    run = write_run(tmp_path_factory.mktemp("widths") / "run", shape, NAMES)
    write_logs(run, make_attempts(shape))
    return run


@pytest.fixture(scope="module")
def families(tmp_path_factory) -> RunFolder:
    """A run of families that was played to its champions."""
    run = shop.generate(shop.write_shop(tmp_path_factory.mktemp("widths-shop")))
    shop.play(run)
    return run


def check(lines: list[str], columns: int) -> None:
    for line in lines:
        assert measure(line) <= columns or measure(PATH.sub("", line)) <= columns, f"{columns}: {line}"


def figures(lines: list[str]) -> set[str]:
    return set(FIGURE.findall("\n".join(lines)))


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize(
    "words",
    ["status", "report", "stats", "stats --trials", "study show", "study show --sort value", "explain"],
)
@pytest.mark.parametrize("kind", ["networks", "families"])
def test_tables_of_a_run(kind, words, columns, request):
    run = request.getfixturevalue(kind)
    command, *options = words.split()
    more = [options.pop(0)] if options and not options[0].startswith("-") else []
    argv = [command, *more, str(run.path), *options]
    lines = see(columns, partial(regiondag.cli.main, argv))
    whole = see(1000, partial(regiondag.cli.main, argv))
    check(lines, columns)
    assert figures(lines) <= figures(whole), figures(lines) - figures(whole)  # none is a part of another
    assert len(lines) > 1


@pytest.mark.parametrize("columns", WIDTHS)
def test_the_tables_of_an_import_and_of_a_folder_of_data(columns, tmp_path: Path):
    shop.write_table(tmp_path / "shop.csv", regions={**shop.REGIONS, "A region with a rather long name": 30})
    argv = ["import", str(tmp_path / "shop.csv"), "--out", str(tmp_path / "data")]
    for lines in (
        see(columns, partial(nnlib.cli.main, argv)),
        see(columns, partial(nnlib.cli.main, ["inspect", str(tmp_path / "data")])),
    ):
        check(lines, columns)
        assert any("customers" in line for line in lines), lines
        [berg] = [line for line in lines if line.startswith("Berg ")]
        assert " 40 " in berg and " 21" in berg


@pytest.mark.parametrize("columns", WIDTHS)
def test_the_champions(families, columns):
    study = families.path.parents[1] / "study.yaml"
    lines = see(columns, partial(regiondag.cli.main, ["champions", "list", str(study)]))
    check(lines, columns)
    assert any("Avon" in line for line in lines)


SLOT = PoolSlot("slot1@gpu-worker-17.some-department.example.org", True, 3, 64, 515000, 8, True)
POOL = PoolStatus("default", "embedded", "23.9.6", "127.0.0.1:34939", 1.79e9, 8, (SLOT,) * 2, {"idle": 3, "running": 1})


@pytest.mark.parametrize("columns", WIDTHS)
def test_a_pool(columns, monkeypatch):
    monkeypatch.setattr("regiondag.pool.pool.require_pool", lambda name: None)
    monkeypatch.setattr("regiondag.pool.status.look", lambda pool: POOL)
    lines = see(columns, partial(regiondag.cli.main, ["pool", "status"]))
    check(lines, columns)
    assert "64 CPUs, 515000 MB, 8 simulated GPUs, 3 claims" in " ".join(" ".join(lines).split())


INSTANCE = InstanceRow(
    "i-0123456789abcdef0", "g5.12xlarge", "on-demand", "eu-central-1a", "never joined", 90000, 4, 0, 4, 7.1
)


@pytest.mark.parametrize("columns", WIDTHS)
def test_a_fleet(columns):
    rows = table_rows(FleetStatus("night", "eu-central-1", "default", (INSTANCE,) * 3, ()))
    lines = see(columns, lambda: print_table("fleet night in eu-central-1", HEADINGS, rows, NARROW))
    check(lines, columns)
    assert sum("i-0123456789abcdef0" in line for line in lines) == 3 and "7.1000" in "\n".join(lines)

"""Whatever a person names, a command takes it or refuses it in words, in bounded time and memory, and harms nothing."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.hostile.data_files import DATA_FILES, prepare
from tests.hostile.inputs import REGION_NAMES
from tests.hostile.networks import NETWORKS
from tests.hostile.requests import REQUESTS
from tests.hostile.running import BUG, LONGEST, STEERS, run_bounded
from tests.hostile.study_files import STUDY_FILES
from tests.hostile.tables import TABLES
from tests.workflows.node.hostile_worker import BEHAVIOURS, LATE

INPUTS = (*STUDY_FILES, *TABLES, *DATA_FILES, *NETWORKS)
SECRET = "what nobody is to read"  # noqa: S105 (no password)


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    place = tmp_path_factory.mktemp("honest")
    prepare(place)
    return place


@pytest.mark.parametrize("one", INPUTS, ids=lambda one: one.name)
def test_an_input_is_taken_or_refused(honest, tmp_path, one):
    place = tmp_path / "here"
    shutil.copytree(honest, place)
    (tmp_path / "home").mkdir()
    (tmp_path / "secret").write_text(SECRET)
    one.write(place)
    before = names_in(tmp_path)
    ended = run_bounded(one, place)
    assert ended.code in (one.code if isinstance(one.code, tuple) else (one.code,)), ended
    assert not BUG.search(ended.said) and not STEERS.search(ended.said), ended.said
    assert len(ended.said) < LONGEST and SECRET not in ended.said
    assert re.search(one.says, ended.said), ended.said
    legal = {("here", name) for name in one.writes} | {("home", ".cupy")}  # CuPy's cache, where it is installed
    new = {name for name in names_in(tmp_path) - before if Path(name).parts[:2] not in legal}
    assert not new
    if ended.code:
        assert not any(path.is_file() for name in one.writes for path in (place / name).rglob("*"))
    check_run(place / "runs")


def names_in(place: Path) -> set[str]:
    return {str(path.relative_to(place)) for path in place.rglob("*")}


def check_run(runs: Path) -> None:
    """Nothing in what HTCondor reads was taken for a macro or a template, and no line begins in a name."""
    for path in runs.rglob("*"):
        if path.suffix in (".dag", ".sub", ".config"):
            text = path.read_text(encoding="utf-8")
            assert "1234321" not in text and "$(HOME)" not in text and "$ENV(" not in text, path
            assert not any(line.lower().startswith(("queue 1", "queue 9")) for line in text.splitlines()), path


TABLES_OF = {
    "study.yaml": STUDY_FILES,
    "tables": TABLES,
    "NetCDF": DATA_FILES,
    "networks": NETWORKS,
    "names of regions": REGION_NAMES,
    "requests": REQUESTS,
    "what workers": (*BEHAVIOURS, *LATE),
}


def test_the_page_says_how_many_there_are():
    page = (Path(__file__).parents[2] / "docs/reference/limits.md").read_text(encoding="utf-8")
    for begins, some in TABLES_OF.items():
        assert re.search(rf"^\| {begins}[^|]*\| {len(some)} \|", page, re.MULTILINE), (begins, len(some))
        assert len({getattr(one, "name", one) for one in some}) == len(some)
    assert sum(map(len, TABLES_OF.values())) >= 400

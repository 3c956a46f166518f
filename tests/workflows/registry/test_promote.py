"""What serves is moved in one step, which is journaled first; a step that was cut off is finished by the next."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regiondag.errors import RegiondagError
from regiondag.registry.journal import fold, read_last_step, read_steps
from regiondag.registry.promote import find_previous, pin, promote_region, remove_version, roll_back, unpin
from regiondag.registry.read import FILES, version_key
from regiondag.run.layout import RunFolder
from tests.nnlib.util.steps import at_step
from tests.workflows.registry.registered import NIGHTS, place_champion, promote, registry_of, serving, spec_of

ROOT = Path(__file__).parents[3]


def events(runs):
    return [(step.event, dict(step.moves)) for step in read_steps(registry_of(runs).journal)]


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_champion_is_put_beside_its_run_and_serves(tmp_path):
    champion = promote(tmp_path, NIGHTS[0])
    registry = registry_of(tmp_path)
    folder = tmp_path / "champions/shop/berg" / NIGHTS[0]
    assert registry.current("berg") == champion and champion.folder == folder
    assert names(folder) == ["champion.json", "floor.nc", "model.nc"]
    assert (folder.parent / "current").readlink() == Path(NIGHTS[0])
    assert folder.parent.parent.stat().st_mode & 0o777 == 0o700
    run = RunFolder(tmp_path / champion.run)
    assert champion.model.samefile(run.region("berg").champion_model)
    assert champion.floor.read_text() == f"floor {NIGHTS[0]}"
    assert champion.facts["data"] == {"data.all.nc": "d" * 64} and champion.facts["recipe"]["family"] == "ease"
    assert events(tmp_path) == [("promoted", {"berg": NIGHTS[0]})]


def test_a_run_without_popularity_has_no_floor(tmp_path):
    champion = promote(tmp_path, NIGHTS[0], floor=False)
    assert champion.floor is None and names(champion.folder) == ["champion.json", "model.nc"]


def test_done_twice_it_changes_nothing(tmp_path):
    first = promote(tmp_path, NIGHTS[0])
    before = first.folder.stat().st_mtime_ns
    assert promote(tmp_path, NIGHTS[0]) == first
    assert events(tmp_path) == [("promoted", {"berg": NIGHTS[0]})] and first.folder.stat().st_mtime_ns == before


def test_a_model_that_was_made_again_in_the_same_run_is_another_version(tmp_path):
    promote(tmp_path, NIGHTS[0])
    again = promote(tmp_path, NIGHTS[0], model="better")
    assert again.version == f"{NIGHTS[0]}-2" == serving(tmp_path)
    assert [one.version for one in registry_of(tmp_path).versions("berg")] == [again.version, NIGHTS[0]]


def test_a_run_of_before_yesterday_that_ends_today_takes_nobodys_place(tmp_path):
    promote(tmp_path, NIGHTS[1])
    promote(tmp_path, NIGHTS[0])
    assert serving(tmp_path) == NIGHTS[1] and events(tmp_path)[-1] == ("registered", {"berg": NIGHTS[0]})


def test_what_was_rolled_back_stays_so_until_the_next_night(tmp_path):
    runs, registry = tmp_path, registry_of(tmp_path)
    for night in NIGHTS[:3]:
        promote(runs, night)
    past = fold(read_steps(registry.journal))["berg"]
    assert find_previous(registry, "berg", past).version == NIGHTS[1]
    assert roll_back(registry, {"berg": NIGHTS[1]}) == {"berg": NIGHTS[1]}
    assert roll_back(registry, {"berg": NIGHTS[1]}) == {}  # it serves already
    assert serving(runs) == NIGHTS[1]
    promote(runs, NIGHTS[2])  # DAGMan runs POST of the last night once more
    assert serving(runs) == NIGHTS[1]
    past = fold(read_steps(registry.journal))["berg"]
    assert (past.current, past.event) == (NIGHTS[1], "rolled back")
    assert find_previous(registry, "berg", past).version == NIGHTS[0]  # further back, and not forth again
    promote(runs, NIGHTS[3])
    assert serving(runs) == NIGHTS[3]


def test_a_pinned_region_keeps_what_it_has_and_new_versions_are_there_all_the_same(tmp_path):
    runs, registry = tmp_path, registry_of(tmp_path)
    promote(runs, NIGHTS[0])
    assert pin(registry, "berg").pinned and pin(registry, "berg").pinned
    promote(runs, NIGHTS[1])
    assert serving(runs) == NIGHTS[0] and [one.version for one in registry.versions("berg")] == [*NIGHTS[1::-1]]
    assert events(runs) == [
        ("promoted", {"berg": NIGHTS[0]}),
        ("pinned", {"berg": NIGHTS[0]}),
        ("registered", {"berg": NIGHTS[1]}),
    ]
    roll_back(registry, {"berg": NIGHTS[1]})  # by a person; the pin goes along
    assert registry.current("berg").pinned and not registry.version("berg", NIGHTS[0]).pinned
    assert fold(read_steps(registry.journal))["berg"].pinned.moves == {"berg": NIGHTS[1]}
    assert unpin(registry, "berg") and not unpin(registry, "berg")
    promote(runs, NIGHTS[2])
    assert serving(runs) == NIGHTS[2]


def test_what_never_served_is_nothing_to_go_back_to(tmp_path):
    runs, registry = tmp_path, registry_of(tmp_path)
    promote(runs, NIGHTS[0])
    pin(registry, "berg")
    promote(runs, NIGHTS[1])
    unpin(registry, "berg")
    promote(runs, NIGHTS[2])
    past = fold(read_steps(registry.journal))["berg"]
    assert find_previous(registry, "berg", past).version == NIGHTS[0]


def test_all_regions_go_back_in_one_step(tmp_path):
    runs, registry = tmp_path, registry_of(tmp_path)
    for night in NIGHTS[:2]:
        for slug in ("berg", "tal"):
            promote(runs, night, slug)
    roll_back(registry, dict.fromkeys(("berg", "tal"), NIGHTS[0]))
    assert events(runs)[-1] == ("rolled back", {"berg": NIGHTS[0], "tal": NIGHTS[0]})
    assert {serving(runs, slug) for slug in ("berg", "tal")} == {NIGHTS[0]}


def test_nothing_is_rolled_back_where_one_version_is_damaged(tmp_path):
    runs, registry = tmp_path, registry_of(tmp_path)
    for night in NIGHTS[:2]:
        for slug in ("berg", "tal"):
            promote(runs, night, slug)
    model = registry.version("tal", NIGHTS[0]).model
    model.write_text(model.read_text().upper())
    with pytest.raises(RegiondagError, match=r"tal/20260101-033000/model\.nc: damaged, its SHA-256 is"):
        roll_back(registry, dict.fromkeys(("berg", "tal"), NIGHTS[0]))
    assert {serving(runs, slug) for slug in ("berg", "tal")} == {NIGHTS[1]}


def test_what_stands_for_all_regions_is_there_and_serves_nobody(tmp_path):
    promote(tmp_path, NIGHTS[0])
    promote_region(place_champion(tmp_path, NIGHTS[0], "pooled"), spec_of("pooled", rows=True))
    registry = registry_of(tmp_path)
    assert registry.regions() == {"berg": "Berg"} and registry.slugs() == ["berg", "pooled"]
    assert registry.current("pooled").version == NIGHTS[0]


def test_what_serves_or_is_pinned_is_not_removed(tmp_path):
    runs, registry = tmp_path, registry_of(tmp_path)
    for night in NIGHTS[:2]:
        promote(runs, night)
    with pytest.raises(RegiondagError, match="serves, so it is not removed"):
        remove_version(registry, "berg", NIGHTS[1])
    remove_version(registry, "berg", NIGHTS[0])
    assert names(runs / "champions/shop/berg") == [NIGHTS[1], "current"]


def test_every_file_is_in_the_list_of_files(tmp_path):
    promote(tmp_path, NIGHTS[0])
    pin(registry_of(tmp_path), "berg")
    root = registry_of(tmp_path).path
    found = {path.relative_to(root).as_posix() for path in root.rglob("*") if not path.is_dir() or path.is_symlink()}
    listed = {one.path.replace("*/*", f"berg/{NIGHTS[0]}").replace("*", "berg") for one in FILES}
    assert found == listed - {f"berg/{NIGHTS[0]}/model.zip"}  # which programs have in the place of model.nc


# --- crashes -----------------------------------------------------------------------------------------------


def do(runs: Path, deed: str) -> None:
    registry = registry_of(runs)
    if deed == "promote":
        promote_region(RunFolder(runs / f"run-shop-{NIGHTS[2]}").region("berg"), spec_of("berg"))
    elif deed == "roll back":
        roll_back(registry, dict.fromkeys(("berg", "tal"), NIGHTS[0]))
    elif deed == "pin":
        pin(registry, "berg")
    elif deed == "unpin":
        unpin(registry, "tal")
    else:
        remove_version(registry, "berg", NIGHTS[0])


def prepare(runs: Path) -> None:
    for night in NIGHTS[:2]:
        for slug in ("berg", "tal"):
            promote(runs, night, slug)
    pin(registry_of(runs), "tal")
    place_champion(runs, NIGHTS[2], "berg")


def state(runs: Path) -> tuple[object, ...]:
    """All that anybody can see of the registry, but for times."""
    registry = registry_of(runs)
    links = {
        (slug, name): (registry.path / slug / name).readlink()
        for slug in registry.slugs()
        for name in ("current", "pinned")
        if (registry.path / slug / name).is_symlink()
    }
    for slug in registry.slugs():
        champion = registry.current(slug)
        assert champion is not None and champion.facts["version"] == champion.version
        assert not registry.damages(slug)
    return tuple(links.items()), {slug: registry.names(slug) for slug in registry.slugs()}, events(runs)


DEEDS = ("promote", "roll back", "pin", "unpin", "remove")


@pytest.mark.parametrize("deed", DEEDS)
def test_killed_before_any_step_it_was_not_done_or_is_done_by_the_next(tmp_path, deed):
    prepare(tmp_path / "before")
    before = state(tmp_path / "before")
    prepare(tmp_path / "after")
    do(tmp_path / "after", deed)
    after = state(tmp_path / "after")
    program = [sys.executable, "-m", "tests.workflows.registry.test_promote", deed]
    for step in range(100):
        runs = tmp_path / str(step)
        prepare(runs)
        ended = subprocess.run([*program, str(step), runs], cwd=ROOT, check=False)
        if ended.returncode == 0:
            break
        assert ended.returncode == -signal.SIGKILL
        journaled = len(events(runs)) > len(before[2])
        state(runs)  # nothing that anybody sees is half
        unpin(registry_of(runs), "nobody")  # whoever takes the lock next
        seen = state(runs)
        assert seen == after if journaled else (seen[0], seen[2]) == (before[0], before[2])
        if not journaled:  # and who was killed is asked once more
            do(runs, deed)
            assert state(runs) == after
    assert step >= 3 and state(runs) == after


def test_regions_that_end_at_the_same_time_are_all_promoted(tmp_path):
    slugs = [f"region-{n}" for n in range(6)]
    for slug in slugs:
        place_champion(tmp_path, NIGHTS[0], slug)
    program = "import sys; from tests.workflows.registry.test_promote import promote_again as f; f(*sys.argv[1:])"
    words = [[sys.executable, "-c", program, tmp_path, slug] for slug in slugs * 2]
    for process in [subprocess.Popen(one, cwd=ROOT) for one in words]:
        assert process.wait() == 0
    assert all(serving(tmp_path, slug) == NIGHTS[0] for slug in slugs)
    assert sorted(events(tmp_path), key=str) == [("promoted", {slug: NIGHTS[0]}) for slug in slugs]


def promote_again(runs: str, slug: str) -> None:
    promote_region(RunFolder(Path(runs) / f"run-shop-{NIGHTS[0]}").region(slug), spec_of(slug))


@pytest.mark.parametrize("cut", range(1, 100, 7))
def test_a_torn_line_was_not_said(tmp_path, cut):
    promote(tmp_path, NIGHTS[0])
    journal = registry_of(tmp_path).journal
    whole = journal.read_bytes()
    journal.write_bytes(whole + whole.replace(b"promoted", b"rolled back")[: min(cut, len(whole) - 1)])
    assert read_last_step(journal).event == "promoted" and len(read_steps(journal)) == 1
    promote(tmp_path, NIGHTS[1])
    assert events(tmp_path) == [("promoted", {"berg": night}) for night in NIGHTS[:2]]


WORDS = st.sampled_from(["promoted", "rolled back", "registered", "pinned", "unpinned", "removed", "sung"])
STEPS = st.lists(
    st.tuples(WORDS, st.dictionaries(st.sampled_from(["berg", "tal", "ü"]), st.sampled_from(NIGHTS), max_size=3))
)


@given(steps=STEPS, tear=st.binary(max_size=20).filter(lambda text: b"\n" not in text))
def test_the_last_step_is_read_from_the_end_as_it_is_from_the_beginning(tmp_path_factory, steps, tear):
    path = tmp_path_factory.mktemp("journal") / "journal.jsonl"
    lines = [json.dumps({"event": event, "time": 1.5, "by": "ada", "moves": moves}) for event, moves in steps]
    path.write_bytes("".join(f"{line}\n" for line in lines).encode() + tear)
    read = read_steps(path)
    assert [(step.event, dict(step.moves)) for step in read] == steps
    for block in (1, 7, 1 << 16):
        assert read_last_step(path, block) == (read[-1] if read else None)
    folded = fold(read)
    for slug, past in folded.items():
        moved = [moves[slug] for event, moves in steps if slug in moves and event in ("promoted", "rolled back")]
        assert past.current == (moved[-1] if moved else None)
        assert past.served.keys() <= set(moved)


@given(st.lists(st.sampled_from(["promote", "roll back", "pin", "unpin", "again"]), max_size=8))
def test_the_links_are_what_the_journal_says(tmp_path_factory, deeds):
    runs = tmp_path_factory.mktemp("runs")
    registry, night = registry_of(runs), 0
    promote(runs, f"202601{night + 1:02d}-000000")
    for deed in deeds:
        if deed == "promote":
            night += 1
        if deed in ("promote", "again"):
            promote(runs, f"202601{night + 1:02d}-000000")
        elif deed == "roll back":
            roll_back(registry, {"berg": registry.names("berg")[-1]})
        else:
            (pin if deed == "pin" else unpin)(registry, "berg")
        past, current = fold(read_steps(registry.journal))["berg"], registry.current("berg")
        assert (past.current, past.pinned is not None) == (current.version, current.pinned)
        assert past.known == set(registry.names("berg"))
        if not current.pinned and deed == "promote":
            assert current.version == max(registry.names("berg"), key=version_key)


@pytest.mark.parametrize("line", ["{}", "[]", '{"event": 1, "time": 2, "by": "a", "moves": {}}', "nonsense", '""'])
def test_a_line_that_is_none_is_named(tmp_path, line):
    promote(tmp_path, NIGHTS[0])
    journal = registry_of(tmp_path).journal
    journal.write_text(f"{line}\n{journal.read_text()}")
    with pytest.raises(RegiondagError, match=r"journal\.jsonl:1: not a line of a registry's journal"):
        read_steps(journal)


if __name__ == "__main__":  # deed, number of the step, runs: the process is killed there
    with at_step(int(sys.argv[2]), lambda: os.kill(os.getpid(), signal.SIGKILL), ((os, "symlink"), (os, "unlink"))):
        do(Path(sys.argv[3]), sys.argv[1])

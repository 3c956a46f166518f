"""What a person sees of a run in progress, on terminals of any size."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from nnlib.util.terminal import measure
from regiondag.monitor.pace import Pace, RunPace
from regiondag.monitor.status import Figure, RegionStatus, RunStatus
from regiondag.monitor.watch_view import Watched, draw, headline
from regiondag.run.layout import NodeName
from regiondag.run.live import Live

NOW = 1_790_000_000.0
BASE = RegionStatus("Germany", "germany", 17, 0, 0, 0, 0, 0, None, "ndcg@20", "", None)
BEST, TEST = Figure(0.147, 0.0123, 1119, 0.09), Figure(0.152, 0.0093, 1248, 0.102)
SEARCHED = replace(BASE, region="all regions", slug="pooled", done=7, running=2, validation=BEST)
SERVED = replace(BASE, planned=0, served_by="all regions")


def status(*regions: RegionStatus, dag: str = "running") -> RunStatus:
    return RunStatus("retail", "run", dag, 0 if dag == "ended" else None, NOW - 100, regions, (), "")


def seen(now: RunStatus, *before: RunStatus, pace: RunPace | None = None) -> Watched:
    watched = Watched(pace)
    for number, one in enumerate([*before, now]):
        watched.look(one, NOW - 10.0 * (len(before) - number))
    return watched


def said(slug: str, trial: int, **more: object) -> dict[NodeName, Live]:
    node = NodeName(slug, trial)
    fields = {"epoch": 4, "epochs": 30, "loss": 7.25, "value": 0.08123, "curve": (), "seconds_left": 12.4, "at": NOW}
    return {node: Live(node, **{**fields, **more})}


def test_a_line_for_each_region_and_each_trial_that_speaks():
    now = status(SEARCHED, SERVED)
    live = said("pooled", 7) | said("pooled", 8, epochs=0, value=None, loss=None, seconds_left=None, doing="fits graph")
    assert draw(replace(now, live=tuple(live.values())), seen(now), NOW, 80, 24) == [
        "retail: 0/1 champions, 7/17 trials, 2 running",
        "all regions  ██████░░░░░░░░░░  7/17  2 running  best 0.147 ± .012 (1,119)",
        "  t0007 epoch 4/30, ndcg@20 0.08123, 12 s left",
        "  t0008 fits graph",
        "Germany                              waits",
    ]


def test_champions_stand_with_their_test():
    done = replace(SEARCHED, done=17, running=0, final="promoted", test=TEST)
    now = status(done, replace(SERVED, final="kept", test=TEST), replace(SERVED, region="Peru", final="failed"))
    first, *rows = draw(now, seen(now), NOW, 80, 24)
    assert first == "retail: 1/2 champions, 17/17 trials"
    assert rows[0] == "all regions  ████████████████  17/17  promoted  test 0.152 ± .009 (1,248)"
    assert rows[1].split() == ["Germany", "kept", *["test", "0.152", "±", ".009", "(1,248)"]]
    assert rows[2].split() == ["Peru", "failed"]


def test_an_earlier_run_tells_the_end_from_the_first_look_on():
    pace = RunPace(Pace((10.0, 20.0, 60.0)), {"germany": Pace((30.0,))})
    now = replace(status(replace(BASE, planned=2)), started=NOW)
    watched = seen(now, pace=pace)
    first, row = draw(now, watched, NOW, 80, 24)
    assert "about 60 s left, until " in first and row.split()[-2:] == ["90", "s"]  # three outcomes, each in 30 s
    assert "about" not in headline(replace(now, dag="ended"), watched, NOW)


def test_without_one_the_looks_so_far_tell():
    before = [status(replace(BASE, done=done, running=1)) for done in (0, 1, 2)]
    now = status(replace(BASE, done=3, running=1))
    assert "about 8 min left" in headline(now, seen(now, *before), NOW)  # 100 s for three of eighteen


def test_what_matters_less_goes_first_from_the_headline():
    now = status(replace(SEARCHED, slug="all", failed=1, held=1, expected_end=NOW + 600.0))
    assert headline(now, seen(now), NOW, 200).startswith(
        "retail: 0/1 champions, 7/17 trials, 2 running, 1 failed, 1 held, about 10 min left, until "
    )
    assert headline(now, seen(now), NOW, 80).endswith("1 failed, 1 held, about 10 min left")
    assert headline(now, seen(now), NOW, 60) == "retail: 0/1 champions, 7/17 trials, 1 failed, 1 held"
    assert headline(now, seen(now), NOW, 30) == "retail: 0/1 champions"
    assert headline(replace(now, study="\x1b[2J"), seen(now), NOW, 200).startswith("?[2J")


def random_region(rng: random.Random, number: int) -> RegionStatus:
    done = rng.randrange(18)
    jobs = {"running": rng.choice((0, 0, 0, 2)), "idle": rng.choice((0, 0, 1)), "held": rng.choice((0, 0, 0, 1))}
    final = rng.choice(("", "", "promoted", "kept", "failed"))
    figures = {"validation": rng.choice((None, BEST)), "test": TEST if final in ("promoted", "kept") else None}
    name = rng.choice(("Côte d'Ivoire", "日本の大きな店", "United Arab Emirates, northern part", "x")) + f" {number}"
    served = rng.random() < 0.3
    region = replace(BASE, region=name, slug=f"r{number}", done=done, final=final, **jobs, **figures)
    return replace(region, planned=0, done=0, served_by="all regions") if served else region


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
@pytest.mark.parametrize("height", [6, 24, 60])
@pytest.mark.parametrize("regions", [1, 5, 41, 1000])
def test_nothing_is_wider_or_higher_than_the_terminal_and_no_figure_is_cut(width, height, regions):
    rng = random.Random(regions)
    before = status(*(random_region(rng, number) for number in range(regions)))
    now = status(*(random_region(rng, number) for number in range(regions)))
    pace = RunPace(Pace((10.0, 90.0)), {"r1": Pace((5.0,))})
    live = {node: one for number in range(min(regions, 50)) for node, one in said(f"r{number}", 3).items()}
    lines = draw(replace(now, live=tuple(live.values())), seen(now, before, pace=pace), NOW, width, height)
    assert max(map(measure, lines)) <= width and len(lines) < height
    for line in lines:
        assert ("±" in line) == (("± .012 (1,119)" in line) or ("± .009 (1,248)" in line)), line


def test_regions_that_do_not_move_are_summed_up():
    still = [replace(BASE, region=f"R{n}", slug=f"r{n}") for n in range(990)]
    champions = [replace(BASE, region=f"C{n}", slug=f"c{n}", final="kept", test=TEST) for n in range(9)]
    now = status(*still[:500], SEARCHED, *still[500:], *champions)
    lines = draw(now, seen(now), NOW, 80, 24)
    assert len(lines) == 3 and lines[1].startswith("all regions") and "2 running" in lines[1]
    assert lines[2] == "and 999 more: 9 with champion, 990 waiting"
    quiet = status(*still, *champions)
    assert draw(quiet, seen(quiet), NOW, 80, 24)[1] == "999 regions: 9 with champion, 990 waiting"


def test_a_region_that_has_just_ended_is_seen_for_a_while():
    many = [replace(BASE, region=f"R{n}", slug=f"r{n}", done=3, running=n == 7) for n in range(100)]
    now = status(*many[:7], replace(many[7], done=4, running=0), *many[8:])
    watched = seen(now, status(*many))
    assert draw(now, watched, NOW, 80, 24)[1].startswith("R7 ")
    assert draw(now, watched, NOW + 60, 80, 24)[1].startswith("100 regions")

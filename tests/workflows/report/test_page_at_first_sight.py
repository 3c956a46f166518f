"""The page's headline, its map, and a page that is made anew while somebody looks, in headless Chromium."""

from __future__ import annotations

import json
import time
from dataclasses import replace

import pytest

from regiondag.report.page import shell_of, write_page
from regiondag.report.page_shell import page_parts
from regiondag.report.write import write_report
from regiondag.run.layout import NodeName
from regiondag.run.live import Live
from tests.support import made_up_run
from tests.support.browser import Page
from tests.workflows.report import test_page_in_browser as pages
from tests.workflows.report.test_page_in_browser import READY, choose, click, first_seen, shown, texts

pytestmark = [pytest.mark.browser]
browser, make = pages.browser, pages.make
SCREENS = [(1280, 800), (390, 844), (1920, 1080)]
STAYS = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture(scope="module")
def night(make):
    """A second night: there is a recipe in office."""
    return make(41, 6, 3, nights=2)


def bottom(page, selector):
    return page.run(f"document.querySelector({selector!r}).getBoundingClientRect().bottom")


def summary_of(path):
    return json.loads((path.parent / "summary.json").read_text())


def test_programs_are_not_said_to_be_better_or_worse_nor_to_have_customers(browser, tmp_path):
    run = made_up_run.write_run(tmp_path / "run-x", made_up_run.Shape(3, 2, 2))
    summary = write_report(run)
    theirs = {"of_program": True, "customers": 0, "gains": {}, "compared": {}, "popularity": {}, "incumbent": ""}
    summary = replace(summary, regions=tuple(replace(one, **theirs) for one in summary.regions if one.finished))
    page = shown(browser, write_page(run, summary, shell_of(page_parts()), attempts=[]))
    assert "with the best of their trials" in (told := texts(page, "#counts dt")) and "better" not in told
    assert "customer" not in page.run("document.querySelector('#beside').textContent")
    assert page.run("document.querySelector('#groups').textContent").count(summary.metric) == len(summary.regions)


def live(region, trial, epoch, at=0.0):
    node = NodeName(f"region-{region}", trial)
    curve = tuple(0.03 + 0.002 * one for one in range(epoch))
    return {node: Live(node, epoch, 30, 0.25, curve[-1] if curve else None, curve, 61.0, time.time() - at)}


def watched(browser, path):
    """A page whose clock is ours."""
    for context in browser.contexts:
        context.close()
    page = Page(browser, 1280, 800)
    page.tab.clock.install()
    page.tab.goto(path.as_uri())
    page.wait(READY)
    return page


# --- the headline ------------------------------------------------------------------------------------------


def test_the_headline_has_the_summarys_numbers(browser, night):
    page, headline = first_seen(browser, night), summary_of(night)["headline"]
    counts = headline["counts"]
    tiles = dict(zip(texts(page, "#counts dt"), texts(page, "#counts dd"), strict=True))
    assert [int(tiles[name].split()[-1]) for name in ("better", "worse", "stayed", "failed")] == [
        counts.get(name, 0) for name in ("better", "worse", "stayed", "failed")
    ]
    assert tiles["regions"] == "41" and tiles["of training"].endswith((" min", " h"))
    assert texts(page, "#needs li")[0].startswith(f"{counts['failed']} regions failed: ")
    assert "what served before with 95 % certainty" in texts(page, "#sentences")[0]
    click(page, "#needs button", "region 13")
    assert page.run("document.getElementById('pick').value") == "region-13"


@pytest.mark.parametrize("size", SCREENS)
def test_nothing_is_scrolled_for_the_headline(browser, night, size):
    page = first_seen(browser, night, *size)
    assert max(bottom(page, "#counts"), bottom(page, "#sentences"), bottom(page, "#needs")) < size[1]
    assert page.run(STAYS) == 0 and page.complaints == []
    cut = "[...document.querySelectorAll('.tile dd, .figures, .figures *')].filter(e => e.scrollWidth > e.clientWidth + 1 && e.clientWidth).length"  # fmt: skip  # noqa: E501
    assert page.run(cut) == 0  # no number is cut


def test_a_run_that_has_not_decided_anything_says_so(browser, make):
    page = first_seen(browser, make(12, 3, 2, ends="never"))
    assert texts(page, "#counts dt")[:3] == ["unfinished", "regions", "trials settled"]
    assert texts(page, "#counts dd")[2] == "36 of 36"
    assert page.run("document.getElementById('state').textContent").startswith("Still going when this was made, ")
    assert page.complaints == []


def test_where_all_has_failed_every_region_says_why(browser, make):
    page = first_seen(browser, make(4, 3, 2, names=(), ends="all fail"))
    assert (
        texts(page, ".group h3") == ["✗ Failed 4"]
        and texts(page, ".cell .why") == ["data.test.nc: SHA-256 differs"] * 4
    )
    assert page.run("document.getElementById('state').textContent") == "The run has ended."


# --- the map -----------------------------------------------------------------------------------------------


def test_regions_stand_in_groups_those_first_that_need_somebody(browser, night):
    page = first_seen(browser, night)
    groups = [text.split()[0] for text in texts(page, ".group h3")]
    assert groups == [sign for sign in "✗▼▲≈…○" if sign in groups] and "✗" in groups
    gains = [float(text.replace("−", "-").replace("±", "")) for text in texts(page, ".cell.is-better b")]
    assert gains == sorted(gains, reverse=True) and min(gains) > 0
    rows = {row["region"]: row for row in summary_of(night)["regions"]}
    assert all(rows[name]["gains"]["floor"]["low"] > 0 for name in texts(page, ".cell.is-better .name"))
    choose(page, "#order", "customers")
    customers = [int(text.split()[0].replace(",", "")) for text in texts(page, ".cell.is-stayed .of")]
    assert customers == sorted(customers, reverse=True)
    choose(page, "#against", "incumbent")
    better = [name for name, row in rows.items() if row["verdict"] == "better"]
    assert set(texts(page, ".cell.is-better .name")) == set(better)  # by what the headline counts


@pytest.mark.parametrize("regions", [41, 130])
def test_the_map_goes_by_the_keyboard(browser, make, night, regions):
    page = first_seen(browser, night if regions == 41 else make(regions, 0, 1, attempts=False))
    assert page.run("document.querySelectorAll('.cell').length") == regions
    page.run("document.querySelector('.cell[tabindex=\"0\"]').focus()")
    at = "Number(document.activeElement.dataset.at)"
    for key, expected in (("ArrowRight", 1), ("ArrowRight", 2), ("ArrowLeft", 1), ("End", regions - 1), ("Home", 0)):
        page.tab.keyboard.press(key)
        assert page.run(at) == expected
    top = page.run("document.activeElement.getBoundingClientRect().top")
    page.tab.keyboard.press("ArrowDown")
    assert page.run("document.activeElement.getBoundingClientRect().top") > top
    page.tab.keyboard.press("ArrowUp")
    assert page.run(at) == 0
    name = page.run("document.activeElement.title").split(",")[0]
    page.tab.keyboard.press("Enter")
    assert page.run("document.activeElement.textContent") == f"One region: {name}"  # and the keyboard goes on there
    assert page.run("document.querySelector('.cell[aria-current]').dataset.at") == "0" and page.complaints == []


def test_the_first_key_skips_to_what_it_came_to(browser, night):
    page = first_seen(browser, night)
    page.tab.keyboard.press("Tab")
    assert page.run("document.activeElement.className") == "skip"
    page.tab.keyboard.press("Enter")
    assert page.run("document.activeElement.id") == "main"


def test_a_thousand_regions_are_few_rows_and_no_picture_of_the_library(browser, make):
    page = first_seen(browser, make(1000, 0, 1, attempts=False), 1280, 800)
    assert page.run("document.querySelectorAll('.cell').length") == 1000
    assert page.run("document.querySelectorAll('.ranks *').length") < 25
    assert page.run("typeof Plotly") == "undefined"
    assert 20 < page.run("document.querySelectorAll('#overview tbody tr').length") < 100
    assert page.run("document.querySelector('#overview table').ariaRowCount") == "1001"
    first = "document.querySelector('#overview tbody tr:not(.space) th').textContent"
    width = "document.querySelector('#overview thead th').getBoundingClientRect().width"
    before, wide = page.run(first), page.run(width)
    page.run("document.querySelector('#overview .scroll').scrollTop = 15000")
    page.wait(f"{first} !== {before!r}")
    rows = page.run("[...document.querySelectorAll('#overview tbody tr:not(.space)')].map(e => e.ariaRowIndex)")
    assert 400 < int(rows[0]) < int(rows[-1]) < 700 and page.run(width) == wide
    click(page, "#overview thead button", "region")
    page.run("document.querySelector('#overview .scroll').scrollTop = 1e9")
    page.wait("[...document.querySelectorAll('#overview tbody th')].at(-1).textContent === 'x'.repeat(200)")
    assert page.run(STAYS) == 0 and page.complaints == []


def test_colours_follow_the_screen_and_signs_say_the_same(browser, night):
    page = first_seen(browser, night)
    shade = "getComputedStyle(document.querySelector('.cell.is-better .sign')).color"
    assert page.run(shade) == "rgb(0, 114, 178)"
    page.tab.emulate_media(color_scheme="dark")
    assert page.run(shade) == "rgb(86, 180, 233)"
    assert page.run("getComputedStyle(document.body).backgroundColor") == "rgb(21, 24, 28)"
    signs = {"better": "▲", "stayed": "≈", "failed": "✗"}
    assert all(set(texts(page, f".cell.is-{kind} .sign")) == {sign} for kind, sign in signs.items())


@pytest.mark.parametrize("dark", [False, True])
def test_axe_finds_nothing_to_object_to(browser, make, night, dark):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    for path in (night, make(130, 4, 3, names=(), live=live(1, 4, 3), refresh=60, ends="never")):
        page = shown(browser, path)
        page.tab.emulate_media(color_scheme="dark" if dark else "light")
        found = axe.run(page.tab).response["violations"]
        assert [(one["id"], one["nodes"][0]["html"]) for one in found] == []


def test_print_leaves_controls_out_and_shows_every_row(browser, make):
    page = first_seen(browser, make(130, 0, 1, names=(), attempts=False))
    page.tab.emulate_media(color_scheme="dark")
    page.run(
        "addEventListener('beforeprint', () => { window.printed = ["
        "document.querySelectorAll('#overview tbody tr').length, getComputedStyle(document.body).backgroundColor]; })"
    )
    page.tab.pdf(prefer_css_page_size=True)
    assert page.run("window.printed") == [130, "rgb(255, 255, 255)"]
    page.tab.emulate_media(media="print")
    hidden = "getComputedStyle(document.querySelector({!r})).display"
    assert {page.run(hidden.format(one)) for one in (".controls", "nav", ".skip", "#region", "#timeline")} == {"none"}
    assert page.run(hidden.format("#headline")) == "grid"


# --- while it runs -----------------------------------------------------------------------------------------


def test_running_trials_have_epochs_and_curves(browser, make):
    running = live(0, 4, 12) | live(2, 5, 0, at=70)
    page = shown(browser, make(3, 4, 3, names=("<i>a</i>", "b", "c"), live=running, refresh=600, ends="never"))
    assert texts(page, "#running h2") == ["Running now: 2 trials"]
    rows = page.run(
        "[...document.querySelectorAll('#lives tbody tr')].map(e => [...e.children].map(c => c.textContent))"
    )
    assert rows[0][:3] == ["<i>a</i>", "4", "12 of 30"] and "0.0520" in rows[0] and "61 s" in rows[0]
    assert page.run("document.querySelectorAll('#lives .spark').length") == 1
    assert rows[1][-1].startswith("7") and rows[1][-1].endswith(" s before")  # 70, and those that the page took
    assert "running" in texts(page, "#curves .legendtext")
    assert page.complaints == []


def test_a_page_that_is_made_anew_stands_where_it_stood(browser, make):
    path = make(41, 6, 3, ends="never", live=live(0, 6, 3), refresh=600)
    page = watched(browser, path)
    choose(page, "#order", "name")
    click(page, "#wide")
    click(page, "#overview thead button", "region")
    click(page, "#overview tbody button", "region 17")
    page.wait("document.getElementById('region').dataset.drawn === ''")
    choose(page, "#trial", "3")
    page.run("(e => { e.value = 'region'; e.dispatchEvent(new Event('input')); })(document.getElementById('find'))")
    page.run("(document.getElementById('after').focus({preventScroll: true}), scrollTo(0, 777), window.stood = 1)")
    page.tab.clock.fast_forward(601_000)
    page.wait("window.stood === undefined && document.documentElement.dataset.ready")
    value = "document.getElementById({!r}).value"
    kept = [page.run(value.format(one)) for one in ("pick", "order", "find", "trial")]
    assert kept == ["region-17", "name", "region", "3"]
    assert page.run("document.activeElement.id") == "after" and page.run("Math.round(scrollY)") == 777
    assert page.run("document.getElementById('wide').checked")
    assert texts(page, "#overview th[aria-sort]") == ["region"]
    assert page.complaints == []


def test_it_does_not_reload_under_anybodys_hands(browser, make):
    page = watched(browser, make(3, 2, 2, ends="never", refresh=600))
    assert page.run("document.getElementById('state').textContent").startswith("Still going. Made ")
    page.run("window.stood = 1")
    click(page, "#pause")
    page.tab.clock.fast_forward(700_000)
    page.tab.wait_for_timeout(300)
    assert page.run("window.stood") == 1 and page.run("document.getElementById('pause').textContent") == "Go on"
    page.tab.clock.pause_at(page.run("Date.now() / 1000") + 60)  # or it reloads where it takes long until a key comes
    click(page, "#pause")
    page.run("document.getElementById('find').select()")
    page.tab.keyboard.press("a")  # somebody types
    page.tab.clock.run_for(1000)
    assert page.run("window.stood") == 1
    page.tab.clock.run_for(5000)
    page.tab.clock.resume()
    page.wait("window.stood === undefined && document.documentElement.dataset.ready")
    assert page.run("document.getElementById('find').value") == "a"
    assert page.run("document.activeElement.id") == "find"


def test_new_figures_are_said_once(browser, make):
    path = make(9, 3, 2, names=(), ends="never", refresh=600)
    page = watched(browser, path)
    assert page.run("document.getElementById('said').textContent") == ""
    time.sleep(1)  # the two are told apart by the second in which they were made
    path.write_bytes(make(9, 3, 2, names=(), refresh=600).read_bytes())
    page.tab.clock.fast_forward(601_000)
    page.wait("document.getElementById('said')?.textContent")
    assert page.run("document.getElementById('said').textContent").startswith("New figures: ")
    assert page.run("document.getElementById('state').textContent") == "The run has ended."
    assert page.complaints == []

"""The report's page in headless Chromium: what is seen, sorted, picked, downloaded, printed, and never fetched."""

from __future__ import annotations

import base64
import csv
import io
import json
import re

import pytest

from regiondag.report.page import shell_of, write_page
from regiondag.report.page_shell import page_parts
from regiondag.report.write import write_report
from tests.support import made_up_run
from tests.support.browser import Page, chromium, find_chromium

pytestmark = [pytest.mark.browser]

READY = "document.documentElement && document.documentElement.dataset.ready"
DRAWN = "document.documentElement.dataset.drawn"
HOSTILE = (
    "</script><img src=x onerror=alert(1)>",
    "<b onmouseover=alert(2)>b</b> <a href='http://example.org'>a</a>",
    "=1+1",
    '-say "hi", ok',
    "Côte d'Ivoire",
    "x" * 200,
    "+1",
    "@a",
)
TEST = 4  # the column of the test metric
PLOTS = {"slots", "history", "curves", "parallel", "depends"}


@pytest.fixture(scope="module")
def make(tmp_path_factory):
    """Make the page of a run that is made up, and return its path."""

    def make_page(regions, trials, epochs, names=HOSTILE, attempts=True, live=None, refresh=None, **more):
        shape = made_up_run.Shape(regions, trials, epochs, slots=5, **more)
        run = made_up_run.write_run(tmp_path_factory.mktemp("run") / "run-x", shape, names)
        tries = made_up_run.make_attempts(shape) if attempts else []
        return write_page(run, write_report(run), shell_of(page_parts()), attempts=tries, live=live, refresh=refresh)

    return make_page


@pytest.fixture(scope="module")
def small(make):
    return make(9, 24, 8)


@pytest.fixture(scope="module")
def browser():
    program = find_chromium()
    assert program, "CI is set, but there is no Chromium: sudo apt-get install chromium"
    with chromium(program) as started:
        yield started


@pytest.fixture
def page(browser, small):
    return shown(browser, small)


def first_seen(browser, path, width=1400, height=900):
    for context in browser.contexts:
        context.close()
    page = Page(browser, width, height)
    page.tab.goto(path.as_uri())
    page.wait(READY)
    return page


def shown(browser, path, width=1400):
    """A page of which every part has come into sight."""
    page = first_seen(browser, path, width)
    for part in ("region", "timeline", "failures"):
        page.run(f"document.getElementById('{part}').scrollIntoView()")
        page.wait(f"document.getElementById('{part}').dataset.drawn === ''")
    page.wait(DRAWN)
    page.run("scrollTo(0, 0)")
    return page


def texts(page, selector):
    return page.run(f"[...document.querySelectorAll({selector!r})].map(e => e.textContent)")


def column(page, table, place):
    """The texts of a column; 1 is the region's name, which heads its row."""
    return texts(page, f"#{table} tbody tr > :nth-child({place})")


def cells_of(page):
    """The texts of all regions' rows."""
    row = "e => [...e.children].map(c => c.textContent)"
    return page.run(f"[...document.querySelectorAll('#overview tbody tr')].map({row})")


def click(page, selector, text=None):
    found = f"[...document.querySelectorAll({selector!r})].find(e => {text!r} === 'None' || e.textContent === {text!r})"
    page.run(found.replace("'None' === 'None'", "true") + ".click()") if text else page.run(
        f"document.querySelector({selector!r}).click()"
    )


def choose(page, selector, value):
    page.run(
        f"(e => {{ e.value = {value!r}; e.dispatchEvent(new Event('change')); }})(document.querySelector({selector!r}))"
    )


def downloaded(page, selector):
    """Press a CSV button and read the file."""
    with page.tab.expect_download() as download:
        click(page, selector)
    text = download.value.path().read_bytes().decode()
    return text, list(csv.reader(io.StringIO(text, newline="")))


# --- what is there -----------------------------------------------------------------------------------------


def test_everything_is_drawn_and_nothing_is_fetched(page, small):
    drawn = page.run("[...document.querySelectorAll('.js-plotly-plot')].map(e => e.closest('figure').id)")
    assert set(drawn) == PLOTS
    assert page.run("document.querySelectorAll('#parallel .scatterlayer path.js-line').length") > 10
    assert page.run("document.querySelector('#slots image').getAttribute('href').length") > 1000
    assert len(texts(page, "#overview tbody tr")) == 9
    assert page.complaints == []
    assert [url for url in page.requests if not url.startswith(("data:", "blob:"))] == [small.as_uri()]
    assert page.run("document.getElementById('message').textContent") == ""


def test_the_network_is_closed_to_whatever_might_run(page):
    refused = page.run("fetch('https://example.org/').then(() => 'sent', () => 'refused')")
    assert refused == "refused"
    ran = page.run(
        "(() => { const script = document.createElement('script'); script.textContent = 'window.ran = 1';"
        " document.body.append(script); return window.ran ?? 0; })()"
    )
    assert ran == 0


def test_names_are_text_wherever_they_stand(page):
    assert set(HOSTILE) <= set(column(page, "overview", 1))
    for number, name in enumerate(HOSTILE):
        choose(page, "#pick", f"region-{number}")
        assert page.run("document.getElementById('region-title').textContent") == f"One region: {name}"
    assert page.run("document.querySelectorAll('main img, main a, td b, svg a, [onerror], [onmouseover]').length") == 0
    assert set(HOSTILE) <= set(texts(page, ".cell .name"))
    assert page.run("document.scripts.length") == 5 and page.complaints == []


def test_the_timeline_tells_its_stretches_to_the_keyboard(page):
    page.run("document.querySelector('#slots .plot').focus()")
    page.tab.keyboard.press("ArrowRight")
    first = texts(page, "#slots .readout")[0]
    page.tab.keyboard.press("ArrowRight")
    assert re.match(r"slot1_\d@gpu-0.example.org: [a-z ]+, ", first) and texts(page, "#slots .readout")[0] != first
    assert {"training", "transfer in", "transfer out"} <= set(texts(page, ".legend li"))


# --- sorting, filtering, picking ---------------------------------------------------------------------------


def test_a_heading_sorts_and_sorts_back(page):
    before = column(page, "overview", TEST)
    click(page, "#overview thead button", "test ndcg@20")
    falling = [float(text) for text in column(page, "overview", TEST) if text]
    assert falling == sorted(falling, reverse=True)
    assert column(page, "overview", TEST)[-1] == ""  # absent values are last
    click(page, "#overview thead button", "test ndcg@20")
    assert [float(text) for text in column(page, "overview", TEST) if text] == falling[::-1]
    assert page.run("document.querySelector('#overview th[aria-sort]').getAttribute('aria-sort')") == "ascending"
    assert sorted(before) == sorted(column(page, "overview", TEST))


def test_regions_are_found_by_text_and_status(page):
    page.run("(e => { e.value = 'ivoire'; e.dispatchEvent(new Event('input')); })(document.getElementById('find'))")
    assert column(page, "overview", 1) == ["Côte d'Ivoire"]
    page.run("(e => { e.value = ''; e.dispatchEvent(new Event('input')); })(document.getElementById('find'))")
    choose(page, "#status", "failed")
    assert set(column(page, "overview", 2)) == {"✗ failed"}
    assert texts(page, "#overview [role=status]") == ["1 row"]


def test_another_metric_can_be_shown(page):
    before = column(page, "overview", TEST)
    choose(page, "#metric", "p@10")
    assert "test p@10" in texts(page, "#overview th") and column(page, "overview", TEST) != before


def test_every_figure_stands_with_its_interval_its_customers_and_what_it_has_to_beat(page, small):
    few = texts(page, "#overview th[scope=col]")
    assert few == [
        *("region", "outcome", "customers", "test ndcg@20", "95 %", "over recent popularity", "95 % of it"),
        "served by",
    ]
    click(page, "#wide")
    assert texts(page, "#overview th[scope=col]") == [
        *("region", "outcome", "status", "customers", "test ndcg@20", "95 %", "over recent popularity", "95 % of it"),
        *("over best simple", "95 % of it", "recent popularity", "best simple", "bestsellers", "served by", "reason"),
        *("trials run", "failed", "pruned", "hours"),
    ]
    click(page, "#wide")
    click(page, "#overview thead button", "region")
    click(page, "#overview thead button", "customers")
    [cells] = [cells for cells in cells_of(page) if cells[0] == HOSTILE[0]]
    row = json.loads((small.parent / "summary.json").read_text())["regions"][0]
    test, gain = row["test"]["ndcg@20"], row["gains"]["floor"]
    show = lambda value: f"{value:+.4f}".replace("-", "−")  # noqa: E731
    assert cells[2:7] == [
        f"{row['customers']:,}",
        f"{test:.4f}",
        f"{test - 0.01:.4f} to {test + 0.01:.4f}",
        show(gain["value"]),
        f"{show(gain['low'])} to {show(gain['high'])}",
    ]
    assert re.search(r"; best ndcg@20 .* 0\.\d+ ± 0\.00\d\d \(trial \d+, 1,119 customers, recent pop", about(page))
    assert texts(page, "#trials th[scope=col]")[3:6] == ["± 95 %", "customers", "recent popularity"]
    served = texts(page, "#beside tr")
    assert len(served) == 4 and served[0].startswith(f"served{test:.4f}") and "gain" in served[2]


def test_a_region_that_is_searched_for_with_others_does_not_look_as_if_its_trials_had_failed(browser, make):
    page = shown(browser, make(3, 5, 3, ("all", "small", "served"), served=True))
    click(page, "#wide")
    rows = {cells[0]: cells[-4:] for cells in cells_of(page)}
    assert rows["served"] == ["-"] * 4 and rows["all"][0] == "5"
    choose(page, "#pick", "region-2")
    assert about(page).endswith("is that of all") and page.complaints == []
    click(page, "#about button", "all")
    assert page.run("document.getElementById('pick').value") == "region-0"


def about(page):
    return page.run("document.getElementById('about').textContent")


def test_a_region_and_a_trial_are_picked(page):
    click(page, "#overview tbody button", "Côte d'Ivoire")
    assert page.run("document.getElementById('pick').value") == "region-4"
    click(page, "#trials tbody button", "5")
    assert "picked, trial 5" in texts(
        page, "#history .legendtext, #curves .legendtext, #parallel .legendtext"
    ) or texts(page, "tr.picked")
    assert page.run("document.getElementById('trial').value") == "5"
    click(page, "#after")
    assert page.run("document.getElementById('pick').value") == "region-5"
    assert page.complaints == []


# --- tables to take away -----------------------------------------------------------------------------------


def test_the_csv_of_regions_is_quoted_and_safe_for_spreadsheets(page):
    text, [heads, *rows] = downloaded(page, "#overview .csv")
    assert heads[:5] == ["region", "outcome", "status", "customers", "test ndcg@20"] and text.endswith("\r\n")
    names = [row[0] for row in rows]
    assert sorted(name for name in names if not name.startswith("region ")) == sorted(
        [*HOSTILE[:2], "'=1+1", '\'-say "hi", ok', *HOSTILE[4:6], "'+1", "'@a"]
    )
    assert all(len(row) == len(heads) for row in rows)
    change = [row[heads.index("over recent popularity")] for row in rows]
    assert any(text.startswith("-") for text in change)  # a number stays a number


@pytest.mark.parametrize(
    ("button", "heads", "least"),
    [
        ("#history .csv", ["region", "trial", "status", "ndcg@20", "best so far", "reason"], 24),
        ("#curves .csv", ["region", "trial", "status", "epoch", "ndcg@20"], 24 * 3),
        (
            "#parallel .csv",
            [
                "region",
                "trial",
                "status",
                "hidden",
                "learning_rate",
                "dropout",
                "denoising",
                "optimizer",
                "momentum",
                "ndcg@20",
            ],
            10,
        ),
        ("#slots .csv", ["slot", "phase", "region", "trial", "start", "seconds", "ending", "reason"], 9 * 24),
        ("#trials .csv", ["trial", "status", "ndcg@20"], 24),
        ("#causes > .below .csv", ["kind", "cause", "region", "trial", "machine", "reason"], 1),
    ],
)
def test_every_picture_has_its_table(page, button, heads, least):
    _, [found, *rows] = downloaded(page, button)
    assert found[: len(heads)] == heads and len(rows) >= least
    assert all(len(row) == len(found) for row in rows)


# --- pictures ----------------------------------------------------------------------------------------------


def test_what_pictures_were_taken_for_is_a_table_with_some_of_them(browser, make):
    path = make(2, 3, 3, ("one", "two"), classes=HOSTILE)
    page = shown(browser, path)
    assert texts(page, "#confusion thead th[title]") == texts(page, "#confusion tbody th") != []
    assert page.run("[...document.querySelectorAll('#confusion tbody th')].map(e => e.title)") == list(HOSTILE)
    cells = page.run(
        "[...document.querySelectorAll('#confusion tbody tr')].map(e => [...e.cells].map(c => c.innerText))"
    )
    assert [row[1:] for row in cells[:2]] == [
        ["1", "9", "0", "0", "0", "0", "0", "0", "10"],
        ["1", "9", "0", "0", "0", "0", "0", "0", "10"],
    ]
    found = json.loads((path.parents[1] / "regions/region-0/champion/confusion.json").read_text())
    pixels = base64.b64decode(found["examples"][0]["pixels"])
    drawn = "document.querySelector('#confusion canvas').getContext('2d').getImageData(0, 0, 48, 48).data"
    rgba = bytes(page.run(f"[...{drawn}]"))
    assert [rgba[at::4] for at in range(4)] == [*(pixels[at::3] for at in range(3)), b"\xff" * 48 * 48]
    labels = page.run("[...document.querySelectorAll('#confusion canvas')].map(e => e.ariaLabel)")
    assert labels == texts(page, "#confusion li")
    assert [label[0] + label[-6:] for label in labels] == ["✗, 75 %", "✓, 50 %"]
    assert page.run("document.querySelectorAll('main img, main a, td b, [onerror], [onmouseover]').length") == 0
    _, [heads, first, *_] = downloaded(page, "#confusion .csv")
    assert (heads, first[2:]) == (["class", "taken for", "pictures", "of"], ["9", "10"])
    assert "pictures" in texts(page, "#overview th[scope=col]") and page.complaints == []


def test_of_many_classes_the_pairs_are_listed(browser, make):
    page = shown(browser, make(1, 3, 3, ("one",), classes=tuple(f"class {n}" for n in range(30))))
    assert texts(page, "#confusion thead th") == ["class", "taken for", "pictures", "of"]
    assert texts(page, "#confusion tbody tr:first-child > *") == ["class 0", "class 1", "9", "10"]
    assert page.complaints == []


# --- sizes, colours, paper ---------------------------------------------------------------------------------


def test_a_narrow_screen_scrolls_tables_and_not_the_page(browser, small):
    page = shown(browser, small, width=400)
    assert page.run("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0
    assert page.run("document.querySelector('#overview .scroll').scrollWidth") > 400
    heights = page.run(
        "[...document.querySelectorAll('.main-svg:first-child')].map(e => e.getBoundingClientRect().height)"
    )
    assert (
        page.run("Math.max(...[...document.querySelectorAll('.cell')].map(e => e.getBoundingClientRect().right))") < 400
    )
    assert len(heights) == len(PLOTS) and min(heights) > 100
    page.tab.set_viewport_size({"width": 900, "height": 900})
    page.wait("document.querySelector('#parallel .main-svg').getBoundingClientRect().width > 700")
    assert page.run("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0
    assert page.complaints == []


def test_it_prints_in_light_colours_whatever_the_screen_has(page):
    page.tab.emulate_media(color_scheme="dark")
    page.wait("getComputedStyle(document.body).backgroundColor === 'rgb(21, 24, 28)'")
    page.run(
        "addEventListener('beforeprint', () => { window.printed = [getComputedStyle(document.body).backgroundColor,"
        " document.querySelector('#parallel .main-svg').getBoundingClientRect().width]; })"
    )
    pages = re.findall(rb"/Type\s*/Page\b", page.tab.pdf(print_background=True, prefer_css_page_size=True))
    assert len(pages) >= 3
    background, width = page.run("window.printed")
    assert background == "rgb(255, 255, 255)" and width <= 710
    assert page.run("getComputedStyle(document.body).backgroundColor") == "rgb(21, 24, 28)"


def test_everything_can_be_reached_by_the_keyboard(page):
    unreachable = page.run(
        "[...document.querySelectorAll('main button, main summary, .scroll, .plot[role=application]')]"
        ".filter(e => e.tabIndex < 0 && !e.classList.contains('cell')).length"
    )
    assert unreachable == 0 and page.run("document.querySelectorAll('.cell[tabindex=\"0\"]').length") == 1
    page.run("document.querySelector('#overview thead button').focus()")
    page.tab.keyboard.press("Enter")
    assert page.run("document.querySelector('#overview th').getAttribute('aria-sort')") == "ascending"


# --- other runs --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("regions", "trials", "names"), [(1, 0, ("one",)), (2, 1, ("one", "two"))])
def test_a_run_that_has_hardly_begun(browser, make, regions, trials, names):
    page = shown(browser, make(regions, trials, 3, names, attempts=False))
    assert "No event log" in page.run("document.getElementById('slots').textContent")
    assert len(texts(page, "#overview tbody tr")) == regions
    assert page.complaints == []


@pytest.mark.slow
def test_a_run_of_8200_trials(browser, make):
    path = make(41, 200, 30)
    assert path.stat().st_size < 6 << 20
    page = shown(browser, path)
    assert len(texts(page, "#overview tbody tr")) == 41
    assert page.run("document.querySelector('#trials table').ariaRowCount") == "201"
    assert set(page.run("[...document.querySelectorAll('.js-plotly-plot')].map(e => e.closest('figure').id)")) == PLOTS
    assert page.complaints == []

"""What champions took pictures for: in the summary, in Markdown, in the page's data."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest

from regiondag.report.headline import say_gain, say_needs
from regiondag.report.markdown import say_headline, to_markdown
from regiondag.report.page_data import page_data
from regiondag.report.summary import Summary, summarise
from regiondag.report.write import write_report
from tests.support import made_up_run
from tests.support.made_up_run import make_confusion
from tests.workflows.report.test_page_data import NOW, region, trials

CLASSES = ("ring", "disc", "<img src=x onerror=alert(1)> | [a](http://example.org)")
FOUND = make_confusion(random.Random(1), CLASSES)


def summary(*regions, **more):
    return Summary("signs", "/runs/run-1", "ndcg@20", regions, **more)


def test_the_most_frequent_mistakes_are_a_table_of_80_columns():
    long = make_confusion(random.Random(2), [f"class {number}: {'x' * 200}" for number in range(20)])
    lines = to_markdown(
        summary(region(confusion=FOUND), region("x" * 99, confusion=long), region("malta"))
    ).splitlines()
    start = lines.index("## Confusion")
    table = lines[start + 2 :]
    assert table[2] == "| Germany | ring | disc | 9 of 10 |"
    assert table[4] == "| Germany | &lt;img src=x onerro… | ring | 1 of 10 |"
    assert len(table) == 2 + 3 + 5 and max(map(len, table)) <= 80
    assert "Confusion" not in to_markdown(summary(region()))


def test_a_region_of_pictures_has_pictures_and_others_customers():
    whole = region(customers=40, stands_for_all=True, confusion=FOUND)
    pictures, customers = summary(whole, region("malta")), summary(replace(whole, confusion=None), region("malta"))
    for one, word, other in ((pictures, "pictures", "customers"), (customers, "customers", "pictures")):
        assert one.asked == word
        assert say_gain(one.regions[0], one).startswith(f"ndcg@20 of all 40 {word} is 0.1")
        assert f"no {word} to judge by" in say_needs(one.headline)[0]
        assert f"| region | {word} |" in to_markdown(one)
        told = " ".join([*say_headline(one), to_markdown(one), *say_needs(one.headline)])
        assert other not in told


def test_the_page_holds_some_pictures_of_each_region_and_few_of_many():
    def shown(count, **more):
        rows = [region(f"r{number}", **more) for number in range(count)]
        return page_data(summary(*rows), [trials(row.slug) for row in rows], [], NOW)

    first, details = shown(2, confusion=FOUND)
    assert first["asked"] == "picture" and len(details["confusions"]) == 2
    assert details["confusions"][0]["pairs"][0] == (0, 1, 9) and len(details["confusions"][0]["examples"]) == 2
    assert len(shown(121, confusion=FOUND)[1]["confusions"][120]["examples"]) == 1
    assert len(shown(241, confusion=FOUND)[1]["confusions"][0]["examples"]) == 0
    first, details = shown(2)
    assert "asked" not in first and "confusions" not in details


def test_reasons_and_cautions_speak_of_pictures_and_the_summary_has_all_but_these(tmp_path):
    run = made_up_run.write_run(tmp_path / "run-x", made_up_run.Shape(2, 3, 2, classes=CLASSES))
    found = summarise(run)
    assert found.regions[0].reason.endswith("(1,119 pictures)") and found.cautions[0].startswith("40 <pictures> were")
    write_report(run)
    [one, _] = json.loads((run.report / "summary.json").read_text())["regions"]
    assert one["confusion"]["pairs"][0] == [0, 1, 9] and "examples" not in one["confusion"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"of": 1}', "null", b"\xff"])
def test_a_damaged_file_hides_nothing_else(tmp_path, text):
    run = made_up_run.write_run(tmp_path / "run-x", made_up_run.Shape(1, 3, 2, classes=CLASSES))
    run.region("region-0").champion_confusion.write_bytes(text if isinstance(text, bytes) else text.encode())
    [one] = summarise(run).regions
    assert one.confusion is None and one.finished and one.reason.endswith("customers)")
    write_report(run)
    [row] = json.loads((run.report / "summary.json").read_text())["regions"]
    assert "confusion" not in row

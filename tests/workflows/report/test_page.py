"""The report's page as a file: what travels with the run, what is in it, and what happens where it cannot be made."""

from __future__ import annotations

import base64
import gzip
import html.parser
import json
import re
import subprocess
import sys

import pytest

from regiondag.cli import main
from regiondag.generate import bundle
from regiondag.report import page_shell
from regiondag.report.page import NoPageError, Shell, assemble, shell_of, write_page
from regiondag.report.page_shell import page_parts, source_hash
from regiondag.report.write import write_report
from regiondag.run.layout import PAGE_LIBRARY, PAGE_SHELL
from regiondag.util.resources import resource_dir
from tests.workflows.commands.test_study import HOSTILE_NAMES, settle
from tests.workflows.generate.test_write_run import create


class Scripts(html.parser.HTMLParser):
    """The text of every script and the attributes of every element, as a parser of HTML finds them."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.scripts = [], {}
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, text):
        tag, attributes = self.elements[-1] if self.elements else ("", {})
        if tag == "script":
            self.scripts.setdefault(attributes.get("id", "page"), text)


def unpacked(page):
    scripts = Scripts(page.read_text()).scripts
    first, details = (json.loads(gzip.decompress(base64.b64decode(scripts[name]))) for name in ("data", "details"))
    return first | details


@pytest.fixture
def run(study_file, tmp_path):
    run = create(study_file, tmp_path / "runs")
    settle(run.region("germany"), "germany", 0, 0.25)
    settle(run.region("germany"), "germany", 1, exit_code=3, reason="the loss is nan in epoch 1")
    return run


def without_plotly(monkeypatch):
    monkeypatch.setattr(page_shell, "find_spec", lambda name: None)


def final_node(run, *, code=None):
    """What DAGMan runs at the end, from the run's own archive, without what this environment has installed."""
    [archive] = run.path.glob("regiondag-*.pyz")
    words = [sys.executable, "-P", code or archive, "post", run.path, "report", "0"]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)


def test_the_last_node_writes_the_page_from_the_archive(run):
    done = final_node(run)
    assert f"wrote {run.page}" in done.stdout and done.stderr == ""
    assert done.returncode == 1  # no region has a champion, page or not
    shown = unpacked(run.page)
    assert [region["name"] for region in shown["regions"]] == ["United Kingdom", "Germany"]
    values = shown["trials"][1]["value"]
    assert values == [0.25, None, None, None][: len(values)]


def test_a_run_without_plotly_gets_its_summary_and_a_line_in_the_log(study_file, tmp_path, monkeypatch):
    without_plotly(monkeypatch)
    run = create(study_file, tmp_path / "runs")
    done = final_node(run)
    assert "the report has no page: plotly was missing" in done.stdout and "pip install plotly" in done.stdout
    assert done.returncode == 1 and (run.report / "summary.md").exists() and not run.page.exists()


@pytest.mark.parametrize("missing", [True, False])
def test_generate_says_that_there_will_be_no_page(study_file, tmp_path, monkeypatch, capsys, missing):
    if missing:
        without_plotly(monkeypatch)
    assert main(["generate", str(study_file), "--out", str(tmp_path / "runs")]) == 0
    assert ("plotly is missing here" in capsys.readouterr().err) is missing


def test_a_damaged_journal_hides_no_other_region_of_the_page(run):
    run.region("united-kingdom").journal.write_text("what?\n")
    done = final_node(run)
    assert f"wrote {run.page}" in done.stdout
    shown = unpacked(run.page)
    assert shown["regions"][0]["verdict"] == "failed" and "not a line" in shown["regions"][0]["reason"]
    assert shown["headline"]["needs"][0] == ["1 region failed", ["United Kingdom"]]
    assert shown["trials"][0]["trial"] == [] and shown["trials"][1]["value"][0] == 0.25


def test_a_page_that_fails_changes_nothing_of_the_dag(run):
    (run.path / "report" / "index.html").mkdir(parents=True)  # cannot be replaced by a file
    done = final_node(run)
    assert done.returncode == 1 and "the report has no page" in done.stdout and "exit 1" in done.stdout.splitlines()[-1]


def test_the_next_run_takes_the_library_of_an_earlier_one(run, monkeypatch):
    parts = page_parts()
    without_plotly(monkeypatch)
    assert page_parts() == {}
    assert page_parts([run.path / "study.yaml", *bundle.archives_of(run.path.parent)]) == parts


def test_nobody_elses_script_gets_into_the_page(run, monkeypatch):
    without_plotly(monkeypatch)
    archives = bundle.archives_of(run.path.parent)
    monkeypatch.setattr(page_shell.os, "getuid", lambda: 12345)
    assert page_parts(archives) == {}


def test_the_command_says_where_the_page_is(run, capsys, monkeypatch):
    assert main(["report", str(run.path)]) == 1
    assert f"Page: {run.page}" in capsys.readouterr().out
    assert main(["report", str(run.path), "--json"]) == 1
    out = capsys.readouterr()
    assert json.loads(out.out)["study"] == "tiny" and f"Page: {run.page}" in out.err


def test_the_command_without_any_library_gives_the_summary(study_file, tmp_path, capsys, monkeypatch):
    without_plotly(monkeypatch)
    run = create(study_file, tmp_path / "runs")
    assert main(["report", str(run.path)]) == 1
    out = capsys.readouterr()
    assert "no page: plotly was missing" in out.err and "Report:" in out.out


def test_the_policy_allows_two_scripts_and_no_network(run):
    shell = shell_of(page_parts())
    text = write_page(run, write_report(run), shell, attempts=[]).read_text()
    found = Scripts(text)
    [policy] = [
        attributes["content"] for tag, attributes in found.elements if tag == "meta" and "http-equiv" in attributes
    ]
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == "'none'" and "connect-src" not in rules
    hashes = {source_hash(found.scripts["page"].encode()), source_hash(gzip.decompress(shell.library))}
    assert set(rules["script-src"].split()) == {f"'{one}'" for one in hashes}
    addresses = [
        value for _, attributes in found.elements for name, value in attributes.items() if name in ("src", "href")
    ]
    assert all(address.startswith(("#", "data:")) for address in addresses)


@pytest.mark.parametrize(
    "name", [*HOSTILE_NAMES, "</script><script>alert(1)</script>", "<!--", "]]>", "\ud800", "{{ 7 * 7 }}"]
)
def test_no_text_of_a_study_is_in_the_page_but_packed(name):
    shell = Shell(
        "<title>t</title><script id=library>@@library@@</script><script id=data>@@data@@</script>"
        "<script id=details>@@details@@</script>",
        b"library",
    )
    text = assemble(shell, {"name": name}, {"reason": name})
    places = "@@library@@|@@data@@|@@details@@"
    assert re.sub("[A-Za-z0-9+/=]", "", text) == re.sub(f"[A-Za-z0-9+/=]|{places}", "", shell.html)
    found = Scripts(text).scripts
    packed = [json.loads(gzip.decompress(base64.b64decode(found[part]))) for part in ("data", "details")]
    assert packed == [{"name": name}, {"reason": name}]


def test_a_template_without_its_places_is_no_page():
    with pytest.raises(NoPageError, match="@@library@@"):
        assemble(Shell("<p>", b""), {}, {})
    with pytest.raises(NoPageError, match="plotly"):
        shell_of({})


def test_scripts_and_style_cannot_end_their_elements():
    files = [path for path in (resource_dir("templates") / "report").iterdir() if path.suffix in (".js", ".css")]
    assert len(files) == 10
    for path in files:
        text = path.read_text(encoding="utf-8").lower()
        assert "</s" not in text and "<!--" not in text and "innerhtml" not in text


def test_the_archive_holds_the_page_and_the_library_with_its_licence(run):
    parts = page_parts()
    assert set(parts) == {PAGE_SHELL, PAGE_LIBRARY}
    library = gzip.decompress(parts[PAGE_LIBRARY])
    assert b"Licensed under the MIT license" in library[:400]
    assert page_parts() == parts  # the same bytes every time
    [archive] = run.path.glob("regiondag-*.pyz")
    assert archive.stat().st_size < 4.4e6  # of which plotly.js is a third, and code of dataclasses a tenth

"""The reference page of study.yaml has a row for every key of its schema."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

from jsonschema import Draft202012Validator

from docs._generate.study import render_study_reference
from regiondag.config.keys import describe_study
from regiondag.util.yaml_file import parse_yaml
from tests.workflows.config.test_keys import leaves

TEXT = render_study_reference(describe_study())


def row_of(anchor: str) -> list[str]:
    [row] = [line for line in TEXT.splitlines() if f'<a id="{anchor}"></a>' in line]
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]]


def test_every_key_has_a_row_with_an_anchor_of_its_own():
    anchors = Counter(re.findall(r'<a id="([a-z0-9_-]+)">', TEXT))
    headings = re.findall(r"^## (.*)$", TEXT, re.MULTILINE)
    assert set(anchors.values()) == {1} and not set(anchors) & set(headings)
    for path, _ in leaves(describe_study()):
        assert "-".join(path if len(path) > 1 else ("study", *path)) in anchors
    assert {"regions-data", "regions-from", "search-space-real-step", "search-space-choice-choice"} <= set(anchors)
    assert [heading for heading in headings if "NAME" in heading] == [
        *(f"`search.space.NAME` with `{kind}`" for kind in ("real", "int", "choice")),
        "`job.submit.NAME` with `expression`",
    ]


def test_a_row_says_what_is_legal_and_what_is_so_by_default():
    assert row_of("job-memory")[1:3] == ["a size such as 512MB or 4GB, at least 1MB", "`4GB`"]
    assert row_of("job-memory_max")[2] == "" and row_of("job-checkpoint")[2] == "`30m`"
    assert row_of("train-precision")[1:3] == ["`float32`, `tf32`, `bf16`, `auto`", "`float32`"]
    assert row_of("train-l2")[2] == "`0`" and row_of("train-epochs")[2] == "`30`"
    assert row_of("regions-name")[2] == "required" and row_of("search-space-real-log")[2] == "`false`"
    assert row_of("study-train")[1] == "[keys of its own](#train)" and "\n## `train`\n" in TEXT
    assert row_of("regions-train")[1] == "as `train` of [the study](#the-study)" and "\n## The study\n" in f"\n{TEXT}"
    assert all(len(row_of(anchor)) == 4 for anchor in re.findall(r'<a id="([a-z0-9_-]+)">', TEXT))


def test_the_pages_example_is_legal():
    page = (Path(__file__).parents[2] / "docs/reference/study.md").read_text()
    example = page.partition("```yaml\n")[2].partition("```")[0]
    Draft202012Validator(describe_study()).validate(parse_yaml(example, "study.md").value)
    assert "\n<!-- generated: study -->\n" in page


def test_links_to_sections_lead_to_headings():
    headings = {re.sub(r"[^\w -]", "", line[3:]).lower() for line in TEXT.splitlines() if line.startswith("## ")}
    links = set(re.findall(r"\[keys of its own\]\(#([^)]*)\)", TEXT))
    assert {"train", "data", "datasplit"} <= links <= headings

"""Every command line of the documentation, run or not, is one that the commands take."""

from __future__ import annotations

import argparse
import contextlib
import io

import pytest

import nnlib.cli
import regiondag.cli
from docs._generate.commands import subparsers_of
from tests.docs.blocks import ROOT, blocks_of, commands_of, own_commands, pages, spans_of

PARSERS = {"regiondag": regiondag.cli.build_parser, "nnlib": nnlib.cli.build_parser}
PAGES = [*pages(), ROOT / "README.md", *sorted((ROOT / "ami").glob("*.md"))]


def refusal(words: list[str]) -> str:
    """Return why a command line is refused; nothing for a legal one."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            PARSERS[words[0]]().parse_args(words[1:])
    except SystemExit as end:
        return said.getvalue() if end.code else ""
    return ""


def unknown_words(words: list[str]) -> list[str]:
    """Return subcommands and options that no parser knows, of a command that need not be whole."""
    parser: argparse.ArgumentParser = PARSERS[words[0]]()
    for place, word in enumerate(words[1:], start=1):
        below = subparsers_of(parser)
        if word == "--" or not below:
            words = words[place:]
            break
        if word not in below:
            return [] if word.startswith("-") or word.isupper() or word == "..." else [word]
        parser = below[word]
    else:
        return []
    options = set(parser._option_string_actions)
    own = words[: words.index("--")] if "--" in words else words
    return [word for word in own if word.startswith("--") and word.split("=")[0] not in options]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_of_a_page_are_legal(page):
    for block in blocks_of(page):
        if block.language == "console":
            for command in commands_of(block):
                for words in own_commands(command.text):
                    assert not refusal(words), f"{block}: {' '.join(words)}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_in_running_text_have_legal_names_and_options(page):
    wrong = {" ".join(words): unknown for words in spans_of(page) if (unknown := unknown_words(words))}
    assert wrong == {}


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_what_is_not_run_has_a_reason_and_what_is_run_says_what_it_needs(page):
    for block in blocks_of(page):
        assert set(block.options) <= {"needs", "not-run", "file", "of"}, block
        assert block.options.get("not-run") != "", block
        assert block.options.get("needs", "pool") == "pool", block
        if page.parent.name == "guides":
            assert block.language not in ("sh", "bash", "shell"), f"{block}: commands stand in console blocks"


@pytest.mark.parametrize(
    ("script", "calls"),
    [
        ("run=$(regiondag generate --quiet study.yaml)", [["regiondag", "generate", "--quiet", "study.yaml"]]),
        ("nnlib inspect a.nc >b.txt; echo $?  # why", [["nnlib", "inspect", "a.nc"]]),
        ('cd x && regiondag status "$run" | head -1', [["regiondag", "status", "$run"]]),
        (
            "nnlib train a.json b.nc \\\n --out c.nc 2>/dev/null",
            [["nnlib", "train", "a.json", "b.nc", "--out", "c.nc"]],
        ),
        ("condor_q regiondag", []),
    ],
)
def test_calls_are_found_in_a_shells_line(script, calls):
    assert [words[: len(call)] for words, call in zip(own_commands(script), calls, strict=True)] == calls


def test_wrong_commands_are_refused():
    assert "unrecognized arguments" in refusal(["regiondag", "status", "RUN", "--wach"])
    assert unknown_words(["regiondag", "status", "--wach"]) == ["--wach"]
    assert unknown_words(["regiondag", "pool", "upp"]) == ["upp"]
    assert unknown_words(["regiondag", "pool", "exec", "--", "condor_q", "--x"]) == []

"""Pages that are made from the code say all of it, and what pages name is there."""

from __future__ import annotations

import pkgutil
import re
from pathlib import Path

import pytest

import nnlib.cli
import nnlib.errors
import regiondag.cli
import regiondag.errors
from docs._generate.commands import render_commands
from docs._generate.contract import render_contract
from docs._generate.errors import render_errors, render_exit_codes
from docs._generate.files import render_files
from docs._generate.markdown import escape, relink
from docs._generate.network import render_network
from docs._generate.pages import GENERATED, REPOSITORY_PAGES, render_toctree
from nnlib.contract import Exit, Result, Trial
from nnlib.spec.layers import LAYER_KEYS
from nnlib.spec.network import NETWORK_KEYS
from regiondag.run.layout import FILES
from tests.docs.blocks import DOCS, ROOT, pages
from tests.workflows.trained import trained_run

SECTIONS = ("guides", "concepts", "reference", "contributing")
IGNORED = {".git", "build", "node_modules", ".bench", "retail", "runs"}
DOCUMENTS = [
    path
    for path in sorted(ROOT.rglob("*.md"))
    if not IGNORED & set(path.relative_to(ROOT).parts) and not path.relative_to(ROOT).parts[0].startswith(".")
]
FOLDER = r"(?:workflows|nnlib|kernels|templates|scripts|ami|tests|docs)/"
NAMED_PATH = re.compile(rf"(?<![\w/.-])({FOLDER}[\w./-]*\.(?:py|cuh?|sh|md))\b|`({FOLDER}[\w./-]*)`")
NAMED_IN_CODE = re.compile(r"`((?:regiondag|nnlib)\.[\w.]+)`")
MOST_LINES = 150
LINK = re.compile(r"\]\(([^)\s#:]+)(?:#[^)\s]*)?\)")


@pytest.mark.parametrize("cli", [regiondag.cli, nnlib.cli])
def test_every_command_and_option_is_described(cli):
    parser = cli.build_parser()
    text = render_commands(parser)
    for name in cli.COMMANDS if cli is regiondag.cli else sum(cli.GROUPS.values(), ()):
        assert f"\n### {parser.prog} {name}\n" in text
    assert "#### regiondag pool up" in text or cli is nnlib.cli
    assert "| `--epochs N` | passes over the examples (default: 30) |" in text or cli is regiondag.cli


def test_every_exit_code_and_error_is_described():
    codes, errors = render_exit_codes(), render_errors()
    for code in {*Exit, 0, 1, 2, 3, 4, 5, 6, 7, 8, 75, 130}:
        assert f"| `{int(code)}` |" in codes
    for name in (
        name for module in (regiondag.errors, nnlib.errors) for name in vars(module) if name.endswith("Error")
    ):
        assert f"### {name}\n" in errors
    assert errors.count("Next: ") == errors.count("### ")


def test_every_key_is_described():
    contract, network = render_contract(), render_network()
    for name in {*Trial.__dataclass_fields__, *Result.__dataclass_fields__}:
        assert f"| `{name}` |" in contract
    for key in {*NETWORK_KEYS, *(key for keys in LAYER_KEYS.values() for key in keys)}:
        assert f"| `{key}` |" in network
    assert all(line.split(" | ")[1].strip() for line in network.splitlines() if line.startswith("| `"))  # what is legal
    assert "| `pDropout` | a number in \\[0, 1) | `0.0` |" in network


@pytest.mark.slow
def test_every_file_of_a_run_is_described(tmp_path):
    trained = trained_run(tmp_path)
    patterns = [file.path for file in FILES]
    files = [path.relative_to(trained.path) for path in trained.path.rglob("*") if path.is_file()]
    assert len(files) > 50
    assert [path for path in files if not any(path.match(pattern) for pattern in patterns)] == []
    assert all(f"| `{pattern}` |" in render_files() for pattern in patterns)


def test_every_page_is_in_a_table_of_contents():
    index = (DOCS / "index.md").read_text()
    for page in pages():
        place = page.relative_to(DOCS).with_suffix("")
        if str(place) == "index":
            continue
        if place.name == "index" or len(place.parts) == 1:
            assert f"\n{place}\n" in index, page
        else:
            assert place.parts[0] in SECTIONS
            assert f"\n{place.name}\n" in render_toctree(place.parts[0])
    for section in SECTIONS:
        assert f"<!-- generated: toctree {section}" in (DOCS / section / "index.md").read_text()


def test_every_place_of_made_text_has_its_function():
    wanted = [found for page in pages() for found in re.findall(r"<!-- generated: (\S+)", page.read_text())]
    assert set(wanted) == set(GENERATED)


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_a_document_names_exist(page):
    text = page.read_text(encoding="utf-8")
    named = [one or other for one, other in NAMED_PATH.findall(text)]
    named = [name for name in named if "REGION" not in name]  # capitals stand for what users have
    made = set(re.findall(r"^\+\+\+ b/(\S+)", text, re.MULTILINE))  # by the patch of an example
    folders = (ROOT, ROOT / "tests", page.parent)
    assert [name for name in named if name not in made and not any((at / name).exists() for at in folders)] == []
    assert [link for link in LINK.findall(text) if not (page.parent / link).exists()] == []


def test_the_glossary_names_what_the_code_has():
    named = NAMED_IN_CODE.findall((DOCS / "concepts" / "glossary.md").read_text(encoding="utf-8"))
    assert len(named) > 40
    for name in named:
        pkgutil.resolve_name(name)  # AttributeError or ModuleNotFoundError for what is not there


def test_the_readme_is_read_to_its_end():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= MOST_LINES


def test_plain_text_becomes_markdown_that_shows_it():
    assert escape("a_b* <c> | `d_e|f` [g]") == r"a\_b\* \<c\> \| `d_e\|f` \[g\]"


def test_links_hold_wherever_a_page_is_shown():
    def shown(link: str, origin: Path) -> str:
        return relink(f"[x]({link})", origin, REPOSITORY_PAGES, DOCS)

    assert shown("gpu.md#a", ROOT / "ami/README.md") == "[x](/reference/gpu-driver.md#a)"
    assert shown("../../ami/README.md", DOCS / "guides/gpus.md") == "[x](/reference/machines.md)"
    assert shown("gpus.md", DOCS / "guides/looking.md") == "[x](/guides/gpus.md)"
    assert shown("fleet.example.yaml", ROOT / "ami/README.md") == "[x](../../ami/fleet.example.yaml)"
    assert shown("https://htcondor.org", DOCS / "index.md") == "[x](https://htcondor.org)"
    assert shown("missing.md", ROOT / "ami/README.md") == "[x](missing.md)"

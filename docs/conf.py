"""The documentation's site: Sphinx, pages in Markdown. `scripts/docs` builds it."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from docs._generate.markdown import relink
from docs._generate.pages import DOCS, GENERATED, REPOSITORY_PAGES
from regiondag import __version__

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "regiondag"
release = version = __version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx_copybutton"]
exclude_patterns = ["_generate"]
html_theme = "furo"
html_title = f"regiondag {version}"
html_show_copyright = False

nb_execution_mode = "off"  # a test runs notebooks; pages show what they printed then
myst_heading_anchors = 4  # the links to headings are those that GitHub makes
default_role = "code"  # docstrings write code between single backticks
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
copybutton_prompt_text = "$ "
# Types in signatures whose documentation is not part of this site.
nitpick_ignore_regex = [
    ("py:class", r"(collections\.abc|numpy|pathlib)\..*"),
    (
        "py:class",
        r"nnlib\.(contract\.(Result|Trial)|data\.rows\.(Dense|Rows)|model\.file\.Model|spec\.types\.NetworkSpec)",
    ),
    ("py:class", r"regiondag\.(run\.layout\.NodeName|study\.model\.Config|run\.study_folder\.StudyFolder)"),
    ("py:class", r"regiondag\.(registry\.read\.Champion|recommend\.region\.Served)"),
    # Imported for types alone, and what stands beside them.
    ("py:class", r"(RunStatus|Summary|Recommender|Answer|BaseDistribution|ConfigurationSpace|Regions|Search|Path)"),
]
linkcheck_timeout = 20
PLACE = re.compile(r"^<!-- generated: ([a-z-]+)((?: \S+)*) -->$", re.MULTILINE)


def fill_page(_app: Sphinx, docname: str, source: list[str]) -> None:
    """Put what the code says where a page wants it, and make links hold on the site."""
    page = DOCS / f"{docname}.md"
    text = relink(source[0], page, REPOSITORY_PAGES, DOCS)
    source[0] = PLACE.sub(lambda found: GENERATED[found[1]](*found[2].split()), text)


def setup(app: Sphinx) -> None:
    """Tell Sphinx."""
    app.connect("source-read", fill_page)

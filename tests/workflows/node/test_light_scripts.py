"""What scripts of a trial import, as DAGMan starts them: a study has thousands, and imports are most of their cost."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence

import pytest

from regiondag.run.layout import NodeName, RunFolder
from tests.workflows.generate.test_write_run import create
from tests.workflows.played import play_job

# Each takes a millisecond or more of fifty, and most other ways to write what it is for are as short.
DEAR = frozenset({"_hashlib", "ast", "bz2", "inspect", "ipaddress", "lzma", "random", "subprocess", "typing"})
OWN_OF_PRE, OWN_OF_POST = 45, 50  # modules of ours, at most: those with dataclasses cost the most
REST = 66  # modules of Python's, at most, that are not built into it: 3.13 has more of them than 3.11


@pytest.fixture
def run(study_file, tmp_path):
    return create(study_file, tmp_path / "runs")


def imported(run: RunFolder, kind: str, node: NodeName, words: Sequence[str]) -> tuple[set[str], set[str]]:
    """Return the modules of ours, and others, that a script imports which ends well."""
    [archive] = run.path.glob("regiondag-*.pyz")
    call = [sys.executable, "-S", "-v", archive, kind, run.path, str(node), *words]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    names = set(re.findall(r"^import '?([\w.]+)'? #", done.stderr, re.MULTILINE))
    own = {name for name in names if name.split(".")[0] in ("regiondag", "nnlib")}
    return own, names - own - set(sys.builtin_module_names)


def test_scripts_of_a_trial_import_little(run):
    first, second = NodeName("germany", 0), NodeName("germany", 1)
    folder = run.region("germany")
    own, others = imported(run, "pre", first, ["0"])  # the first round is no model's
    assert "numpy" not in others and "site" not in others
    own, others = imported(run, "pre", second, ["0"])
    assert "site" not in others and not others & DEAR, others & DEAR
    assert "regiondag.node.proposing" not in own
    assert len(own) <= OWN_OF_PRE and len(others) <= REST, (sorted(own), sorted(others))
    play_job(folder, second)
    own, others = imported(run, "post", second, ["0", "0", "2", "0", "11.0"])
    assert "site" not in others and not others & DEAR, others & DEAR
    assert len(own) <= OWN_OF_POST and len(others) <= REST, (sorted(own), sorted(others))

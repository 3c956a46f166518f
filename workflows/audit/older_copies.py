"""Records that were put back from an older copy, or from another run: each by itself is whole, so another tells.

After each PRE and POST manager.log, which lies outside of the regions' folders, has digests of what they wrote:
`post germany_t0001 0 0 2 0 7.0: exit 0; result.json 0f3c2a...; journal 9b41d7...`. A champion that a run has made
stands in the registry beside the runs.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from nnlib.contract import RESULT_FILE, TRIAL_FILE, sha256_of
from regiondag.audit.lost_records import ADVICE
from regiondag.registry.read import open_registry
from regiondag.run.history import OPEN, History
from regiondag.run.journal import Journal, digest_of_line
from regiondag.run.layout import NodeName, RegionFolder, RunFolder, parse_node
from regiondag.run.region_spec import RegionSpec

_MARK = re.compile(
    rb"^([-0-9]{10} [:0-9]{8}) (pre|post|repair) ([a-z0-9_-]+)[-0-9. ]*: exit 0; "
    rb"(?:(trial|result)\.json ([0-9a-f]{16}); )?journal ([0-9a-f]{16})$",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Marks:
    """What manager.log says of the records of a run; digests have 16 digits."""

    journals: dict[str, str] = field(default_factory=dict)  # slug -> of the last line
    files: dict[tuple[NodeName, str], str] = field(default_factory=dict)  # a node's trial.json, its result.json
    settled: dict[str, dict[int | None, float]] = field(default_factory=dict)  # slug -> trial -> Unix time

    def differs(self, folder: RegionFolder, node: NodeName, name: str) -> bool:
        """Return whether a file is there, and is not what PRE left or POST found; False where that is not known."""
        marked, path = self.files.get((node, name)), folder.trial(node) / name
        return marked is not None and path.is_file() and sha256_of(path)[:16] != marked


def read_marks(run: RunFolder) -> Marks:
    """Return what manager.log said last of each record; nothing where it cannot be read."""
    marks = Marks()
    try:
        text = run.manager_log.read_bytes()
    except OSError:
        return marks
    for when, kind, name, _, digest, journal in _MARK.findall(text):
        with suppress(ValueError):  # a line that only looks like one
            node = parse_node(name.decode())
            marks.journals[node.slug] = journal.decode()
            if kind == b"post":
                moment = time.mktime(time.strptime(when.decode(), "%Y-%m-%d %H:%M:%S"))
                marks.settled.setdefault(node.slug, {})[node.number] = moment
            if digest:
                marks.files[node, TRIAL_FILE if kind == b"pre" else RESULT_FILE] = digest.decode()
    return marks


def is_older(marked: str | None, lines: Sequence[bytes]) -> bool:
    """Return whether a journal lacks the line that was its last one; False where none is known."""
    return marked is not None and marked not in {digest_of_line(line) for line in (b"", *lines)}


def list_older(
    folder: RegionFolder, spec: RegionSpec, history: History, marks: Marks
) -> Iterator[tuple[Path, str, str]]:
    """Yield what is older than what others have noted, or is of another run: which file, what is wrong, what to do."""
    if is_older(marks.journals.get(spec.slug), Journal(folder.journal).lines()):
        seen = "lacks its last line by manager.log; it was cut, or put back from an older copy or another run"
        yield folder.journal, seen, ADVICE
    final = [] if history.final is None else [(None, history.final)]
    for number, settled in [*history.settled.items(), *final]:
        node = NodeName(spec.slug, number)
        if settled.status in OPEN or number in history.cancelled or (spec.served_by and not settled.job):
            continue  # the files may be those of a later try, or of nobody's
        for name in (TRIAL_FILE, RESULT_FILE):
            if marks.differs(folder, node, name):
                seen = "is not what manager.log has the digest of; it was changed, or is an older copy or another run's"
                again = f"regiondag trial rerun {folder.run.path} {spec.slug} {node.folder} --force"
                yield folder.trial(node) / name, seen, f"restore it from a copy, or train it again: {again}"
    newer = _find_unknown_champion(folder, spec.study, history)
    if newer:
        seen = f"this run has made version {newer} of the registry, of which it knows nothing: it is an older copy"
        advice = "put a newer copy of the run in its place; what serves is safe, `regiondag champions` lists it"
        yield folder.path, seen, advice


def _find_unknown_champion(folder: RegionFolder, study: str, history: History) -> str:
    """Return the version in the registry that came from this run after all that its journal knows; empty: none.

    The run is then as a whole older than its champions.
    """
    if None in history.reopened:
        return ""
    registry = open_registry(folder.run.path.parent, study)
    known = [one for one in registry.versions(folder.path.name) if one.run == folder.run.path.name]
    newest = max(known, key=lambda one: one.promoted, default=None)
    if newest is None or newest.promoted <= history.final_at:
        return ""
    return "" if history.final and history.final.ok and _sha256_of_champion(folder) == newest.sha256 else newest.version


def _sha256_of_champion(folder: RegionFolder) -> str:
    try:
        return str(json.loads(folder.champion_metrics.read_text(encoding="utf-8"))["sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""

"""What manager.log says of the records that a script has written, so that one put back from an older copy is noticed.

`regiondag.audit.older_copies` reads it.
"""

from __future__ import annotations

import hashlib
import time
from contextlib import suppress

from nnlib.contract import LONGEST_RESULT, RESULT_FILE, TRIAL_FILE
from nnlib.plain_file import read_plain
from nnlib.util.files import append_lines, read_last_line
from regiondag.run.journal import digest_of_line
from regiondag.run.layout import NodeName, RegionFolder


def mark(folder: RegionFolder, kind: str, node: NodeName) -> str:
    """Return the digests of a node's trial.json after `pre` or its result.json after `post`, and of the journal's end.

    Nothing where they cannot be read.
    """
    name = {"pre": TRIAL_FILE, "post": RESULT_FILE}.get(kind)
    text = ""
    with suppress(OSError):
        if name and (content := read_plain(folder.trial(node) / name, LONGEST_RESULT)):
            text = f"; {name} {hashlib.sha256(content).hexdigest()[:16]}"
    with suppress(OSError):
        return f"{text}; journal {digest_of_line(read_last_line(folder.journal) or b'')}"
    return ""


def note_repaired(folder: RegionFolder) -> None:
    """Let manager.log say that a journal was written anew: what it said of it before counts no more."""
    when, node = time.strftime("%Y-%m-%d %H:%M:%S"), NodeName(folder.path.name, None)
    append_lines(folder.run.manager_log, f"{when} repair {node}: exit 0{mark(folder, 'repair', node)}\n")

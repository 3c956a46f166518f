"""What the system says of a file, as a line for the person who named it: which file, what is wrong, what to do."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

FULL = (errno.ENOSPC, errno.EDQUOT)
REFUSED = (errno.EACCES, errno.EPERM)
ADVICE = {
    errno.ENOSPC: "; make room and try again",
    errno.EDQUOT: "; make room and try again",
    errno.EISDIR: ", legal: a file",
    errno.EEXIST: "; name another one, or move it away",
    errno.EROFS: "; name a file elsewhere",
    errno.ENAMETOOLONG: "; choose a shorter one",
    errno.ELOOP: "; name the file itself",
}
MOST_NAMED = 3


def describe(error: OSError) -> str:
    """Return the line: `PATH: what is wrong; what to do`."""
    path = _path_of(error)
    reason = reason_of(error)
    return f"{path}: {reason}" if path else reason


def reason_of(error: OSError) -> str:
    """Return what is wrong, in the system's words, and what to do, without the path."""
    said = error.strerror or str(error)
    if not error.errno or said != os.strerror(error.errno):
        return said  # a text of ours, which says more
    path = _path_of(error)
    if path is not None and error.errno in (errno.ENOENT, errno.ENOTDIR):
        return said + _explain_missing(path)
    if path is not None and error.errno in REFUSED:
        return said + _explain_refused(path)
    return said + ADVICE.get(error.errno, "")


def _path_of(error: OSError) -> Path | None:
    """Return the file that is meant: of two the one that was to be written, of a part the whole it was to become."""
    name = error.filename2 if error.errno in FULL and error.filename2 else error.filename
    if not name or isinstance(name, int):
        return None
    return Path(*(re.sub(r"^\.(.+?)(\.\d+)?\.part$", r"\1", part) for part in Path(os.fsdecode(name)).parts))


def _explain_missing(path: Path) -> str:
    for folder in reversed(path.parents):
        if not os.path.lexists(folder):
            return f": there is no folder {folder}; check the name, or make the folder first"
        if not folder.is_dir():
            return f": {folder} is a file; name one in a folder"
    if path.is_symlink():
        return f": it is a link to {path.readlink()}; name another file, or mend the link"
    near = _near(path)
    if near:
        return f"; there is: {', '.join(near)}"
    return "; check the name" + ("" if path.is_absolute() else f", which was looked for in {Path.cwd()}")


def _near(path: Path) -> list[str]:
    """Return files beside a missing one that may be meant; of `germany.nc` first the parts `germany.train.nc`."""
    try:
        names = sorted(other.name for other in path.parent.iterdir() if not other.name.startswith("."))
    except OSError:
        return []
    parts = [name for name in names if name.startswith(f"{path.stem}.") and name.endswith(path.suffix)]
    from difflib import get_close_matches  # most users of this module start faster without

    found = (parts or get_close_matches(path.name, names, MOST_NAMED))[:MOST_NAMED]
    return [str(path.with_name(name)) for name in found]


def _explain_refused(path: Path) -> str:
    """Say whose the file is, or the folder in which it was to be made; the first of them that can be seen."""
    held = path
    try:
        while not os.path.lexists(held) and held != held.parent:
            held = held.parent
        owner = held.owner()
    except (OSError, KeyError):
        return "; ask its owner for access, or name one of yours"
    whose = f"it is {owner}'s" if held == path else f"the folder {held} is {owner}'s"
    return f": {whose}; ask for access, or name one of yours"

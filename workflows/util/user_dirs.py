"""Where regiondag keeps what it can make again (cache) and what it must remember (state).

The only module that knows platformdirs. REGIONDAG_HOME, if set, holds both.
"""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

from regiondag.errors import PoolError

HOME_VARIABLE = "REGIONDAG_HOME"


def cache_dir() -> Path:
    """Return the folder of root folders and other things that can be built again."""
    return _home("cache") or platformdirs.user_cache_path("regiondag")


def state_dir() -> Path:
    """Return the folder of pools: their queue, their logs and what is known about them."""
    return _home("state") or platformdirs.user_state_path("regiondag")


def make_dir(path: Path) -> None:
    """Make one of regiondag's folders, for its owner only; say what to do where that is impossible."""
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise PoolError(
            f"cannot make the folder {path}: {error.strerror}. Set {HOME_VARIABLE} to a folder of yours, not below /tmp"
        ) from None


def _home(part: str) -> Path | None:
    home = os.environ.get(HOME_VARIABLE)
    return Path(home).expanduser().absolute() / part if home else None

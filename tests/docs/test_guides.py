"""Each guide is followed: its commands are run in order, in one shell and an empty home, as a reader would."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from regiondag.util.user_dirs import cache_dir, state_dir
from tests.docs.blocks import DOCS, Block, Command, blocks_of, commands_of, matches

GUIDES = sorted((DOCS / "guides").glob("*.md"))
MARK = "--8<--"
PATIENCE = 900  # seconds for a page
KEPT = {"LANG", "TZ", "REGIONDAG_POOL", "REGIONDAG_HOME"}


def needs_pool(page: Path) -> bool:
    return any(block.options.get("needs") == "pool" for block in blocks_of(page))


def script_of(blocks: list[Block]) -> tuple[str, list[tuple[Block, Command]]]:
    """Return a script for bash that says after each command how it ended, and the commands."""
    lines, commands = ["exec 2>&1 </dev/null"], []
    for block in blocks:
        if "file" in block.options:
            lines.append(f"cat >'{block.options['file']}' <<'{MARK}'\n{block.text}{MARK}")
        elif block.language == "console" and "not-run" not in block.options:
            for command in commands_of(block):
                number = len(commands)
                commands.append((block, command))
                lines += [command.text, f"code=$?; printf '\\n{MARK} {number} %s\\n' $code; [ $code = 0 ] || exit 1"]
    return "\n".join([*lines, ""]), commands


def environment(home: Path) -> dict[str, str]:
    """Return the variables of a reader whose home is `home`; caches and pools stay where they are."""
    return {
        **{name: value for name, value in os.environ.items() if name in KEPT},
        "HOME": str(home),
        "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        "XDG_CACHE_HOME": str(cache_dir().parent),
        "XDG_STATE_HOME": str(state_dir().parent),
        "COLUMNS": "100",
        "TERM": "dumb",
        "PYTHONUNBUFFERED": "1",  # lines of stdout and stderr in the order in which a terminal shows them
    }


def follow(page: Path, home: Path) -> None:
    script, commands = script_of(blocks_of(page))
    if not commands:
        return
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=home,
        env=environment(home),
        stdout=subprocess.PIPE,
        encoding="utf-8",
        timeout=PATIENCE,
        check=False,
    ).stdout
    ends = list(re.finditer(rf"\n{MARK} (\d+) (\d+)\n", done))
    begin = 0
    for (block, command), end in zip(commands, ends, strict=False):
        printed = done[begin : end.start()]
        begin = end.end()
        assert end[2] == "0", f"{block}: {command.text}: ended with {end[2]}:\n{printed}"
        assert not command.output or matches(command.output, printed), (
            f"{block}: {command.text}: the page shows\n{command.output}\nit prints\n{printed}"
        )
    assert len(ends) == len(commands), f"{commands[len(ends)][0]}: {commands[len(ends)][1].text}:\n{done[begin:]}"


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in GUIDES if not needs_pool(page)], ids=lambda page: page.stem)
def test_a_guide_is_followed(page, tmp_path):
    follow(page, tmp_path)


@pytest.mark.condor
@pytest.mark.parametrize("page", [page for page in GUIDES if needs_pool(page)], ids=lambda page: page.stem)
def test_a_guide_is_followed_on_a_pool(page, run_area, pool):
    follow(page, run_area)

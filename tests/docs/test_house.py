"""The listing of folders in docs/contributing/house.md is true."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
HOUSE = ROOT / "docs" / "contributing" / "house.md"


def tracked_files() -> list[Path]:
    """Return the files that git tracks."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [Path(name) for name in listed.stdout.split("\0") if name]


def tracked_folders() -> set[str]:
    """Return the folders of the first two levels that hold a file which git tracks."""
    return {folder.as_posix() for path in tracked_files() for folder in path.parents if 1 <= len(folder.parts) <= 2}


def test_the_top_level_has_the_files_that_belong_there():
    files = {path.name for path in tracked_files() if len(path.parts) == 1}
    assert files == {".gitignore", "CHANGELOG.md", "LICENSE", "README.md", "pyproject.toml", "setup.cfg"}


def listed_folders() -> list[str]:
    """Return the folders of the listing, a line each: those of the second level stand indented below their parent."""
    listing = HOUSE.read_text().split("```")[1].strip("\n")
    found, parent = [], ""
    for line in listing.split("\n"):
        match = re.fullmatch(r"( {2})?([^ /]+)/ +\S.*", line)
        assert match, f"{HOUSE.name}: {line!r} is not legal, legal: NAME/ and what it holds, indented by 0 or 2"
        parent = parent if match[1] else match[2]
        found.append(f"{parent}/{match[2]}" if match[1] else parent)
    return found


def test_every_folder_of_the_first_two_levels_has_one_line():
    found = listed_folders()
    missing, gone = sorted(tracked_folders() - set(found)), sorted(set(found) - tracked_folders())
    assert (missing, gone) == ([], []), f"{HOUSE}: folders without a line, and lines without a folder"
    assert found == sorted(found), "in the order of the alphabet"

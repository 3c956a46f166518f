"""Do the machines of a pool fit the environments that go with a run's programs?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from regiondag.condor import classads
from regiondag.errors import RegiondagError
from regiondag.pool.pool import Pool
from regiondag.run.layout import RunFolder
from regiondag.trainers.environments import Contents, describe_contents, look_into
from regiondag.util.text import list_some

RECIPE_PYTHON = "/usr/local/libexec/regiondag/python"  # what runs jobs in the embedded pool
_VERSION = "import sys; print('{}.{}'.format(*sys.version_info))"


def check_environments(
    pool: Pool, run: RunFolder, slugs: Sequence[str], slots: Sequence[classads.ClassAd]
) -> Iterator[tuple[str, bool, str]]:
    """Yield of each environment of a run what it is of, whether a machine fits it, and what was seen."""
    regions: dict[tuple[int, int], list[str]] = {}
    for slug in slugs:
        path = run.region(slug).environment
        if path.exists():
            seen = path.stat()  # regions share a file
            regions.setdefault((seen.st_dev, seen.st_ino), []).append(slug)
    for group in regions.values():
        subject = f"environment of {list_some(group, 3)}"
        try:
            contents = look_into(run.region(group[0]).environment)
        except RegiondagError as error:
            yield subject, False, str(error)
            continue
        problem = _find_mismatch(pool, contents, slots)
        yield subject, not problem, describe_contents(contents) + (f"; {problem}" if problem else "")


def _find_mismatch(pool: Pool, contents: Contents, slots: Sequence[classads.ClassAd]) -> str:
    there = {str(slot.get("Arch", "")) for slot in slots}
    if contents.architecture and slots and contents.architecture not in there:
        return f"the slots are {', '.join(sorted(there))}: no job could use it"
    seen = python_of(pool) if contents.version else ""
    if seen and seen != contents.version:
        return (
            f'this pool runs jobs with Python {seen}; for requirements.txt say python: "{seen}" in trainer.environment'
        )
    return ""


def python_of(pool: Pool) -> str:
    """Return the version of the Python that runs jobs, where all machines have the same; else nothing is known."""
    if pool.kind != "embedded":
        return ""
    done = pool.run([RECIPE_PYTHON, "-c", _VERSION], capture_output=True)
    return done.stdout.strip() if done.returncode == 0 else ""

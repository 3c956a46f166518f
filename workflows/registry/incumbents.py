"""What tonight's candidates have to beat: the registry's champions, as a rollback or a pin counts the next night."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from regiondag.errors import RegiondagError
from regiondag.registry.read import CHAMPION_FILE, open_registry
from regiondag.run.champions import Incumbent, find_incumbents
from regiondag.run.layout import RunFolder


def find_in_office(
    runs: Path, study: str, slugs: Iterable[str], earlier: Sequence[RunFolder], warn: Callable[[str], None]
) -> dict[str, Incumbent]:
    """Return each region's champion: what serves by the registry, else what the first of the `earlier` runs has."""
    registry, found, slugs = open_registry(runs, study), {}, list(slugs)
    for slug in slugs:
        try:
            champion = registry.current(slug)
        except RegiondagError as error:
            warn(f"{error}; until then {slug} goes on from its newest run's champion")
            continue
        if champion is not None:
            found[slug] = Incumbent(champion.model, champion.folder / CHAMPION_FILE, champion.sha256)
    return find_incumbents(earlier, [slug for slug in slugs if slug not in found]) | found

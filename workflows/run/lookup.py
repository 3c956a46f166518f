"""Regions and trials by the names that people give them, which every command reads alike.

A region is meant by its name or its slug; by one that differs in case alone where just one region does. A trial is
meant by its number (7, 0007, t7), the final training by `final`; both also with their region before: germany_t0007.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches

from regiondag.errors import UsageError
from regiondag.run.layout import NodeName, RunFolder
from regiondag.run.region_spec import read_spec
from regiondag.util.text import list_some

MOST_NEAR = 3  # names that may have been meant
_TRIAL = re.compile(r"t?([0-9]{1,5})")
_TRIALS = re.compile(r"t?([0-9]{1,5})-t?([0-9]{1,5})")


def find_region(regions: Mapping[str, str], text: str) -> str:
    """Return the slug of the region that is meant; `regions` are names by slug. UsageError for none."""
    slug = _match_region(regions, text)
    if slug is None:
        near = _near(regions, text)
        hint = f"; {near}" if near else "."
        raise UsageError(f"no region {text!r}{hint} There are: {', '.join(regions.values())}")
    return slug


def find_trials(regions: Mapping[str, str], slug: str, texts: Iterable[str]) -> list[int | None]:
    """Return the trials of a region that are meant, each once, in order; None is the final training.

    Legal are ranges, too: 3-5.
    """
    found: dict[int | None, None] = {}
    for text in texts:
        node = _match_trial(slug, text) or _match_node(regions, text)
        ends = _TRIALS.fullmatch(text)
        if node is None and ends is None:
            raise UsageError(f"{text!r} is no trial; legal: 7, 3-5, final, or a node such as {slug}_t0007")
        if node is not None and node.slug != slug:
            raise UsageError(
                f"{text!r} is a node of the region {node.slug!r}, not of {slug!r}; name the region that it is of"
            )
        if ends is not None:
            first, last = int(ends[1]), int(ends[2])
            if last < first:
                raise UsageError(f"{text!r}: the last trial comes before the first; legal: {last}-{first}")
            found |= dict.fromkeys(range(first, last + 1))
        elif node is not None:
            found[node.number] = None
    return list(found)


def find_region_or_node(run: RunFolder, regions: Mapping[str, str], text: str) -> tuple[str, NodeName | None]:
    """Return the region or the node that is meant; UsageError for what a run does not have."""
    slug = _match_region(regions, text)
    if slug is not None:
        return slug, None
    region, _, label = text.rpartition("_")
    slug = _match_region(regions, region)
    if slug is not None:
        node, last = _match_trial(slug, label), read_spec(run.region(slug).spec).search.last
        if node is not None and (node.number is None or node.number <= last):
            return slug, node
        hint = f"its nodes are {NodeName(slug, 0)} to {NodeName(slug, last)} and {NodeName(slug, None)}"
        if last < 0:
            hint = f"its only node is {NodeName(slug, None)}"
    else:
        names, example = list(regions.values()), next(iter(regions), "germany")
        known = f"regions are {list_some(names)}; a node is called like {example}_t0007"
        hint = _near(regions, region if label and region else text) or known
    raise UsageError(f"{text!r} is neither a region nor a node of {run.path.name}; {hint}")


def _match_region(regions: Mapping[str, str], text: str) -> str | None:
    exact = [slug for slug, name in regions.items() if text in (slug, name)]
    folded = [slug for slug, name in regions.items() if text.casefold() in (slug, name.casefold())]
    found = exact or folded
    return found[0] if len(found) == 1 else None


def _match_trial(slug: str, text: str) -> NodeName | None:
    number = _TRIAL.fullmatch(text)
    if number is None and text != "final":
        return None
    return NodeName(slug, int(number[1]) if number else None)


def _match_node(regions: Mapping[str, str], text: str) -> NodeName | None:
    region, _, label = text.rpartition("_")
    slug = _match_region(regions, region)
    return None if slug is None else _match_trial(slug, label)


def _near(regions: Mapping[str, str], text: str) -> str:
    """Ask which regions may have been meant, each once; nothing where none is near."""
    slugs = {known: slug for slug, name in regions.items() for known in (slug, name)}
    most = 2 * MOST_NEAR
    close = get_close_matches(text, slugs, most, 0.5) or get_close_matches(text.casefold(), slugs, most, 0.5)
    names: dict[str, str] = {}
    for known in close:
        names.setdefault(slugs[known], repr(known))
    return f"did you mean {' or '.join([*names.values()][:MOST_NEAR])}?" if names else ""

"""ClassAds: copies, expressions, literals. The only module that imports classad2, and only when one is asked for."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import Any

ClassAd = Any  # classad2.ClassAd


def copy_ad(ad: ClassAd) -> ClassAd:
    """Return an ad of its own with the same attributes."""
    import classad2

    return classad2.ClassAd(repr(ad))


def parse_expression(text: str) -> Any:
    """Return a classad2.ExprTree."""
    import classad2

    return classad2.ExprTree(text)


def evaluate(text: str, my: ClassAd, target: ClassAd) -> Any:
    """Return the value of an expression between two ads; None where it is no expression."""
    import classad2

    try:
        return parse_expression(text).eval(my, target)
    except classad2.ClassAdException:
        return None


def quote_string(text: str) -> str:
    """Return a text as a literal of an expression."""
    import classad2

    return str(classad2.quote(text))


def parse_ad(text: str) -> ClassAd | None:
    """Parse the first job's ad from what `condor_submit -dry-run -` prints, if there is one."""
    import classad2

    # The bindings know HTCondor's own functions, such as countMatches, from the second ad on that they parse.
    classad2.parseOne("first = true\n", classad2.ParserType.Old)
    assignments = [line for line in text.splitlines() if re.match(r"[A-Za-z_]\w*\s*=", line)]
    ad = classad2.parseOne("\n".join(assignments), classad2.ParserType.Old) if assignments else {}
    return ad if "Requirements" in ad else None


def list_nested(ad: ClassAd, name: str) -> list[ClassAd]:
    """Return the ads that a list of an ad names or holds; none where it is no list, or of what is no ad."""
    import classad2

    found = ad.eval(name) if name in ad else None
    items = found if isinstance(found, list) else []
    items = [item.eval(ad) if isinstance(item, classad2.ExprTree) else item for item in items]
    return [item for item in items if isinstance(item, classad2.ClassAd)]


def replace_requirements(ad: ClassAd, clauses: Iterable[str]) -> ClassAd:
    """Return a copy of a job's ad that requires these clauses alone."""
    changed = copy_ad(ad)
    changed["Requirements"] = parse_expression(" && ".join(f"({clause})" for clause in clauses) or "true")
    return changed


def number_of(ad: ClassAd, name: str) -> int:
    """Return a number of an ad that may be missing or an expression; 0 where it has no finite value."""
    value = ad.eval(name) if name in ad else 0
    return int(value) if type(value) in (int, float) and math.isfinite(value) else 0  # an enum is `undefined`

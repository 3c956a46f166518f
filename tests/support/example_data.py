"""The made-up data of the examples whose trials are programs: weekly sales of shops, and customers who leave or stay.

`python -m tests.support.example_data` writes them anew; a test compares.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "workflows" / "examples"
OF_CUSTOMERS = ("sklearn", "r", "lightgbm", "pytorch")
WEEKS = 130
# Sold in the first week, more each week, how far the level walks in a week, and the noise around it.
SHOPS = {"market": (300.0, 0.0, 18.0, 8.0), "quay": (120.0, 0.0, 2.0, 25.0), "station": (200.0, 3.0, 6.0, 10.0)}
# Customers, and what months, spent, visits and complaints say of who leaves; the last of complaints in few months.
REGIONS = {
    "Islands": (150, (-0.3, 0.0, -0.5, 0.4, 0.0)),
    "North": (450, (-1.2, 0.3, -0.8, 0.9, 0.0)),
    "South": (300, (-0.2, -0.9, 0.2, 0.5, 1.5)),
}


def weekly_sales(shop: str) -> Iterator[str]:
    """Yield the lines of a shop's CSV file."""
    level, trend, walk, noise = SHOPS[shop]
    chance = random.Random(shop)
    yield "week,sold"
    for week in range(1, WEEKS + 1):
        yield f"{week},{max(0, round(level + chance.gauss(0, noise)))}"
        level += trend + chance.gauss(0, walk)


def customers(region: str) -> Iterator[str]:
    """Yield the lines of a region's CSV file."""
    count, weights = REGIONS[region]
    chance = random.Random(region)
    yield "months,spent,visits,complaints,left"
    for _ in range(count):
        months, spent = chance.randint(1, 60), round(chance.lognormvariate(4, 0.6))
        visits, complaints = chance.randint(0, 20), min(5, int(chance.expovariate(0.9)))
        scaled = ((months - 30) / 17, (spent - 65) / 40, (visits - 10) / 6, complaints - 0.7)
        score = sum(w * x for w, x in zip(weights, (*scaled, -scaled[0] * scaled[3]), strict=True)) - 0.4
        yield f"{months},{spent},{visits},{complaints},{int(chance.random() < 1 / (1 + math.exp(-score)))}"


def files() -> dict[Path, str]:
    """Return each file and its text."""
    found = {EXAMPLES / "command" / "data" / f"{shop}.csv": weekly_sales(shop) for shop in SHOPS}
    for example in OF_CUSTOMERS:
        found |= {EXAMPLES / example / "data" / f"{region}.csv": customers(region) for region in REGIONS}
    return {path: "\n".join([*lines, ""]) for path, lines in found.items()}


if __name__ == "__main__":
    for path, text in files().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="ascii")

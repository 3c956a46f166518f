"""The table of prices: what an hour of a machine costs. A price is known or unknown, not guessed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from nnlib.spec.checks import real, whole
from regiondag.condor.events.attempts import Leg
from regiondag.errors import ConfigError
from regiondag.util.schema import TEXT, Layer, Problems, Section
from regiondag.util.yaml_file import Document, load_yaml, parse_yaml

SPOT = "spot"
DEFAULT = "prices.yaml"
DEAREST = 10_000.0  # of an hour


@dataclass(frozen=True, slots=True)
class Price:
    """What an hour of one instance costs, and among how many GPUs that is shared."""

    gpus: int
    on_demand: float
    spot: float


@dataclass(frozen=True, slots=True)
class PriceTable:
    """Prices by instance type, and where they are from."""

    source: str = ""
    date: str = ""
    currency: str = "USD"
    other: Price = Price(1, 0.0, 0.0)  # of machines that do not say what they are
    instances: Mapping[str, Price] = field(default_factory=dict)

    def of_leg(self, leg: Leg, gpus: float) -> float | None:
        """Return what an hour of a leg costs that has `gpus` of its machine's; None where the type has no price.

        A job without GPUs has its machine's share of one.
        """
        kind = leg.facts.get("instance_type", "")
        price = self.instances.get(kind) if kind else self.other
        if price is None:
            return None
        whole = price.spot if leg.facts.get("life_cycle") == SPOT else price.on_demand
        return whole * min(max(gpus, 1.0) / price.gpus, 1.0)


def read_prices(path: Path | None = None) -> PriceTable:
    """Read a table of prices, or the one that comes with regiondag; ConfigError with every mistake in it."""
    document = (
        _default() if path is None else load_yaml(path, "prices", f"copy and edit {files(__package__) / DEFAULT}")
    )
    if not isinstance(document.value, Mapping):
        raise ConfigError([f"{document.file}: holds no keys; legal: source, date, currency, other, instances"])
    problems = Problems(document)
    section = Section(problems, [Layer(document.value, ())])
    known = section.section("instances")
    table = PriceTable(
        source=section.read("source", "unknown", TEXT),
        date=section.read("date", "unknown", TEXT),
        currency=section.read("currency", "USD", TEXT),
        other=_price(section.section("other"), "other"),
        instances={kind: _price(known.section(kind), kind) for kind in _kinds(document.value)},
    )
    section.finish()
    if problems.found:
        raise ConfigError(problems.texts())
    return table


def _default() -> Document:
    """Return the table that comes with regiondag; it may lie in an archive."""
    return parse_yaml((files(__package__) / DEFAULT).read_text(encoding="utf-8"), DEFAULT, "prices")


def _kinds(raw: Mapping[str, Any]) -> list[str]:
    instances = raw.get("instances")
    return list(instances) if isinstance(instances, Mapping) else []


def _price(section: Section, kind: str) -> Price:
    """Read one row. A machine whose spot price is not given costs what it does on demand."""
    if kind != "other" and "on_demand" not in section:
        section.problems.add(section.where("on_demand"), f"the price of {kind} is missing, legal: dollars for an hour")
    on_demand = section.read("on_demand", 0.0, real(0.0, DEAREST))
    price = Price(section.read("gpus", 1, whole(1, 64)), on_demand, section.read("spot", on_demand, real(0.0, DEAREST)))
    section.finish()
    return price

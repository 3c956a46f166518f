"""What is asked over HTTP and what is answered, as dataclasses: the schema in openapi.json is made of these.

Standard library alone. Times are Unix seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from regiondag.serve.typed import Problem, flag, text, texts, whole

LONGEST_NAME = 256  # characters of a customer, an item or a region
MOST_K = 1000
MOST_ITEMS = 10_000  # of a filter or a history
MOST_CUSTOMERS = 1000  # of one request
MOST_RESULTS = 100_000  # items of one answer in all
MOST_BECAUSE = 10
IN_STUDY = "the study, where several have such a region"


@dataclass(frozen=True, slots=True)
class Wishes:
    """What all who want recommendations may say."""

    k: int = whole(10, 1, MOST_K, "how many items at most")
    owned: bool | None = flag("whether to list what the customer has; by default only where purchases are repeated")
    because: int = whole(0, 0, MOST_BECAUSE, "how many items of the customer's to name that raised a score most")
    only: tuple[str, ...] = texts(LONGEST_NAME, MOST_ITEMS, "ids of items: no others are listed")
    never: tuple[str, ...] = texts(LONGEST_NAME, MOST_ITEMS, "ids of items that are not listed")


@dataclass(frozen=True, slots=True)
class InStudy:
    """Which study, where several have a region of that name."""

    study: str = text(LONGEST_NAME, IN_STUDY, "")


@dataclass(frozen=True, slots=True)
class WishesInStudy(Wishes):
    """The query of recommendations for one customer."""

    study: str = text(LONGEST_NAME, IN_STUDY, "")


@dataclass(frozen=True, slots=True)
class OfRegion:
    """The path of a region."""

    region: str = text(LONGEST_NAME, "the region's name, or its short name as in GET /v1/regions")


@dataclass(frozen=True, slots=True)
class OfCustomer(OfRegion):
    """The path of a customer."""

    customer: str = text(LONGEST_NAME, "the customer's id as in the purchases; `/` in it as %2F")


@dataclass(frozen=True, slots=True)
class Asked(Wishes):
    """The body of a request for several customers, or for somebody who is known by a history alone: one of both."""

    customers: tuple[str, ...] = texts(LONGEST_NAME, MOST_CUSTOMERS, "ids of customers")
    history: tuple[str, ...] = texts(LONGEST_NAME, MOST_ITEMS, "ids of what somebody has bought whom the data lack")


@dataclass(frozen=True, slots=True)
class Nothing:
    """A query without names."""


@dataclass(frozen=True, slots=True)
class Item:
    """An item that is recommended; `because` are ids of the customer's own."""

    item: str
    name: str
    score: float
    because: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OneAnswer:
    """The best items first; for a customer who is not `known`, what is popular."""

    study: str
    region: str
    version: str
    customer: str
    known: bool
    by: str
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Answered:
    """The same of one customer among several."""

    customer: str
    known: bool
    by: str
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True)
class Answers:
    """In the order of the customers asked about; a history is answered as one customer without an id."""

    study: str
    region: str
    version: str
    answers: tuple[Answered, ...]


@dataclass(frozen=True, slots=True)
class RegionLine:
    """A region in the list. `state`: serving; waiting, not loaded yet; failed, nothing can be loaded."""

    study: str
    region: str
    name: str
    state: str
    version: str | None
    promoted: float | None
    problem: str


@dataclass(frozen=True, slots=True)
class Regions:
    """All regions that have a champion."""

    regions: tuple[RegionLine, ...]


@dataclass(frozen=True, slots=True)
class Figure:
    """A metric on the test window: the mean over customers with its 95 % interval, and what bestsellers have."""

    value: float | None
    low: float | None
    high: float | None
    popularity: float | None


@dataclass(frozen=True, slots=True)
class RegionFacts:
    """What serves a region; `problem` says why it is not the champion in office, where it is not."""

    study: str
    region: str
    name: str
    state: str
    version: str | None
    problem: str
    promoted: float | None
    loaded: float | None
    pinned: bool
    run: str
    sha256: str
    family: str
    test: Mapping[str, Figure]
    test_customers: int | None
    fitted_until: str | None  # a day, such as 2011-12-09
    customers: int | None
    items: int | None


@dataclass(frozen=True, slots=True)
class Health:
    """The process answers."""

    status: str


@dataclass(frozen=True, slots=True)
class Readiness:
    """How many regions there are: serving, not loaded (yet), with a champion that cannot be loaded."""

    ready: bool
    regions: int
    serving: int
    waiting: int
    failed: int


@dataclass(frozen=True, slots=True)
class Failure:
    """Why there is no answer."""

    status: int
    message: str
    problems: tuple[Problem, ...] = field(default=())

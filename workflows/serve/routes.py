"""Every address of the service: what it takes and what it answers. Both the service and openapi.json are made of it."""

from __future__ import annotations

from dataclasses import dataclass

from regiondag.serve.messages import (
    Answers,
    Asked,
    Health,
    InStudy,
    Nothing,
    OfCustomer,
    OfRegion,
    OneAnswer,
    Readiness,
    RegionFacts,
    Regions,
    WishesInStudy,
)

# What any route may answer instead, and why.
REFUSED = {
    400: "the request cannot be read; what was seen and what is legal",
    401: "no token, or a wrong one",
    408: "the body took too long",
    413: "the body is too large",
    421: "a service without tokens is asked by another name than this machine's own",
    431: "the address and the headers are too large",
    500: "a fault of the service, with a number that its log has, too",
    503: "too busy, or the region is still being loaded; Retry-After says when to ask again",
}
NO_REGION = "no such region, several studies have one, or none of the items of `only` is known"
WRONG_TYPE = "the body is no application/json"


@dataclass(frozen=True, slots=True)
class Route:
    """One address with one method; `answer` is None where it is text, `open` where it needs no token."""

    name: str
    method: str
    path: str
    about: str
    answer: type | None
    in_path: type = Nothing
    query: type = Nothing
    body: type | None = None
    open: bool = False


ROUTES = (
    Route("health", "GET", "/healthz", "Whether the process answers.", Health, open=True),
    Route("readiness", "GET", "/readyz", "Whether regions are served; 503 before.", Readiness, open=True),
    Route("metrics", "GET", "/metrics", "Figures for Prometheus.", None),
    Route("openapi", "GET", "/openapi.json", "This description.", dict),
    Route("regions", "GET", "/v1/regions", "All regions that have a champion.", Regions),
    Route(
        "region",
        "GET",
        "/v1/regions/{region}",
        "What serves a region, since when, and how good it is.",
        RegionFacts,
        in_path=OfRegion,
        query=InStudy,
    ),
    Route(
        "one_customer",
        "GET",
        "/v1/regions/{region}/customers/{customer}/recommendations",
        "Recommendations for one customer.",
        OneAnswer,
        in_path=OfCustomer,
        query=WishesInStudy,
    ),
    Route(
        "several_customers",
        "POST",
        "/v1/regions/{region}/recommendations",
        "Recommendations for several customers, or for somebody who is known by a history alone.",
        Answers,
        in_path=OfRegion,
        query=InStudy,
        body=Asked,
    ),
)

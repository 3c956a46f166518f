"""The service's answers, one method a route. The only module that imports Starlette."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as StarletteRoute
from starlette.routing import Router

from nnlib.errors import DivergedError, NnlibError
from regiondag.serve.asking import HISTORY, facts_of, line_of
from regiondag.serve.desk import Desk, Question
from regiondag.serve.guard import ANSWER_SECONDS, Receive, Scope, Send, encode, refuse
from regiondag.serve.messages import (
    MOST_RESULTS,
    Answered,
    Answers,
    Asked,
    Health,
    InStudy,
    OfCustomer,
    OfRegion,
    OneAnswer,
    Readiness,
    RegionFacts,
    Regions,
    Wishes,
    WishesInStudy,
)
from regiondag.serve.metrics import Champions, Counters, render
from regiondag.serve.openapi import JSON, describe_service
from regiondag.serve.routes import ROUTES, Route
from regiondag.serve.store import NotLoadedError, Region, Serving, Store
from regiondag.serve.typed import Problem, RefusedError, fields, read_json, read_texts, show
from regiondag.util.text import list_some

LOAD_SECONDS = ANSWER_SECONDS * 2 / 3  # that a request waits for its region
METRICS = "text/plain; version=0.0.4; charset=utf-8"
MOST_PAIRS = 20_000  # of names and values in a query, which is bounded as a part of the headers


class Service:
    """What answers: the champions in memory, the desk where questions wait, and the counters."""

    def __init__(self, store: Store, counters: Counters) -> None:
        self._store, self._counters, self._desk = store, counters, Desk()

    async def health(self) -> Health:
        """Say that the process answers."""
        return Health("ok")

    async def readiness(self) -> Readiness:
        """Say what is served, without names, which need a token."""
        states = [one.state for one in self._store.regions.values()]
        problems = sum(1 for one in self._store.regions.values() if one.problem)
        serving = states.count("serving")
        return Readiness(serving > 0, len(states), serving, states.count("waiting"), problems)

    async def metrics(self) -> Response:
        """Return the figures for Prometheus."""
        champions = [_champions_of(region) for region in self._store.regions.values()]
        return Response(render(self._counters, champions, time.time()), media_type=METRICS)

    async def openapi(self) -> Response:
        """Return the description of the service."""
        return Response(json.dumps(describe_service()), media_type=JSON)

    async def regions(self) -> Regions:
        """Return all regions."""
        return Regions(tuple(map(line_of, self._store.regions.values())))

    async def region(self, path: OfRegion, query: InStudy) -> RegionFacts:
        """Return what serves a region."""
        return facts_of(self._find(path.region, query.study))

    async def one_customer(self, path: OfCustomer, query: WishesInStudy) -> OneAnswer:
        """Return recommendations for one customer."""
        serving = await self._serving(self._find(path.region, query.study))
        [found] = await self._ask(Question(serving, _wishes_of(query)), (path.customer,))
        of = serving.champion
        return OneAnswer(of.study, of.slug, of.version, found.customer, found.known, found.by, found.items)

    async def several_customers(self, path: OfRegion, query: InStudy, body: Asked) -> Answers:
        """Return recommendations for several customers, or for a history."""
        if bool(body.customers) == bool(body.history):
            seen = "both" if body.customers else "neither"
            raise RefusedError([Problem("body", seen, "customers or history, one of both")])
        if body.k * len(body.customers) > MOST_RESULTS:
            seen = f"{body.k} items for {len(body.customers)} customers"
            raise RefusedError([Problem("k", seen, f"{MOST_RESULTS} items at most in all")])
        serving = await self._serving(self._find(path.region, query.study))
        question = Question(serving, _wishes_of(body), body.history)
        found = await self._ask(question, body.customers or (HISTORY,))
        return Answers(serving.champion.study, serving.champion.slug, serving.champion.version, tuple(found))

    def _find(self, name: str, study: str) -> Region:
        found = self._store.find(name, study)
        if len(found) == 1:
            return found[0]
        if not self._store.listed:
            raise refuse(503, "the service is just beginning", retry=1)
        if found:
            problem = Problem("study", "nothing", " or ".join(one.place.study for one in found))
            raise refuse(404, "several studies have this region", problem)
        known = list_some([one.slug for one in self._store.regions.values()]) or "none yet"
        raise refuse(404, "no such region", Problem("region", show(name), f"{known}; all: GET /v1/regions"))

    async def _serving(self, region: Region) -> Serving:
        region.used = time.monotonic()
        if region.serving:
            return region.serving
        try:
            async with asyncio.timeout(LOAD_SECONDS):
                return await asyncio.wrap_future(self._store.want(region))
        except TimeoutError:
            raise refuse(503, "the region is still being loaded", retry=5) from None
        except NotLoadedError:
            raise refuse(503, "the region cannot be served; GET /v1/regions/{region} says why", retry=30) from None

    async def _ask(self, question: Question, customers: Sequence[str]) -> list[Answered]:
        try:
            return await self._desk.ask(question, customers)
        except DivergedError:
            raise
        except NnlibError as error:  # what is wanted cannot be: most often no item of `only` is known
            raise refuse(404 if question.wishes.only else 400, str(error)) from None


Answer = Callable[..., Awaitable[object]]  # of the route's path, query and body, those that it has


class Application:
    """The ASGI application: what no route has, and what a route refuses, is raised for `Guard` to answer."""

    def __init__(self, service: Service) -> None:
        routes = [
            StarletteRoute(
                route.path.replace("{customer}", "{customer:path}"), _endpoint(route, service), methods=[route.method]
            )
            for route in ROUTES
        ]
        self._router = Router(routes, redirect_slashes=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        scope["app"] = self  # so the router raises what it would answer in plain text
        try:
            await self._router(scope, receive, send)
        except HTTPException as error:
            problem = Problem("address", show(scope["path"]), ", ".join(route.path for route in ROUTES))
            headers = []
            if error.status_code == 405:
                legal = ", ".join(sorted((error.headers or {}).get("Allow", "GET").split(", ")))
                problem = Problem("method", show(scope["method"]), legal)
                headers = [(b"allow", legal.encode())]
            raise refuse(error.status_code, error.detail.lower(), problem, headers=headers) from None


def _endpoint(route: Route, service: Service) -> Callable[[Request], Awaitable[Response]]:
    answer: Answer = getattr(service, route.name)
    has_path, has_query = bool(fields(route.in_path)), bool(fields(route.query))

    async def endpoint(request: Request) -> Response:
        request.scope["route_name"] = route.name
        given: list[object] = []
        if has_path:
            given.append(read_texts(route.in_path, request.path_params.items()))
        query: object = read_texts(route.query, _pairs_of(request))
        if has_query:
            given.append(query)
        if route.body:
            given.append(read_json(route.body, _body_of(request)))
        found = await answer(*given)
        if isinstance(found, Response):
            return found
        status = 503 if isinstance(found, Readiness) and not found.ready else 200
        return Response(encode(found), status, media_type=JSON)

    return endpoint


def _pairs_of(request: Request) -> list[tuple[str, str]]:
    raw: bytes = request.scope["query_string"]
    try:
        return parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=MOST_PAIRS)
    except ValueError:
        raise RefusedError([Problem("query", show(raw.decode("latin-1")), "names and values in UTF-8")]) from None


def _body_of(request: Request) -> object:
    kind = request.headers.get("content-type", "")
    if kind.partition(";")[0].strip().lower() != JSON:
        raise refuse(415, "the body is of another kind", Problem("Content-Type", show(kind), JSON))
    try:
        return json.loads(request.scope["body"], parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise RefusedError([Problem("body", show(f"{error}"), "JSON in UTF-8")]) from None


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON")


def _wishes_of(query: Wishes) -> Wishes:
    """Return the wishes alone: questions with the same ones are answered together."""
    return Wishes(query.k, query.owned, query.because, query.only, query.never)


def _champions_of(region: Region) -> Champions:
    serving = region.serving
    version, promoted, loaded = "", None, None
    if serving:
        version, promoted, loaded = serving.champion.version, serving.champion.promoted, serving.loaded
    return Champions(region.place.study, region.slug, version, promoted, loaded, bool(region.problem))

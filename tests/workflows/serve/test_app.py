"""Which region is meant, where several studies have one, and before anything is known."""

import asyncio
from pathlib import Path

import pytest

from regiondag.serve.app import Service
from regiondag.serve.guard import FailureError
from regiondag.serve.messages import InStudy, OfRegion
from regiondag.serve.metrics import Counters
from regiondag.serve.store import Place, Region, Store

SHOP, DEPOT = Place(Path("shop/runs"), "shop"), Place(Path("depot/runs"), "depot")


def service_of(*regions, listed=True):
    store = Store([SHOP, DEPOT], 1, None, print, print)
    store.regions, store.listed = {(one.place.study, one.slug): one for one in regions}, listed
    return Service(store, Counters())


def ask(service, name, study=""):
    return asyncio.run(service.region(OfRegion(name), InStudy(study)))


def refusal(service, name, study=""):
    with pytest.raises(FailureError) as error:
        ask(service, name, study)
    return error.value


BOTH = (Region(SHOP, "berg", "Berg"), Region(DEPOT, "berg", "Berg"), Region(DEPOT, "tal", "Tal"))


@pytest.mark.parametrize("name", ["berg", "Berg"])
def test_a_region_of_several_studies_needs_its_study(name):
    service = service_of(*BOTH)
    refused = refusal(service, name).failure
    assert refused.status == 404 and refused.problems[0].legal == "shop or depot"
    assert ask(service, name, "depot").study == "depot"
    assert ask(service, "tal").study == "depot"


def test_what_is_nowhere_is_told_with_what_there_is():
    service = service_of(*BOTH)
    assert refusal(service, "tal", "shop").failure.status == 404
    assert "berg, berg, tal" in refusal(service, "wald").failure.problems[0].legal
    assert "none yet" in refusal(service_of(), "wald").failure.problems[0].legal


def test_before_the_registries_were_read_nothing_is_missing():
    refused = refusal(service_of(listed=False), "berg")
    assert refused.failure.status == 503 and (b"retry-after", b"1") in refused.headers

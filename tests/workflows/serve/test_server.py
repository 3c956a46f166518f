"""The service as a process: what is asked, what is answered, and what is promoted meanwhile."""

import http.client
import json
import signal
import subprocess
import sys
import threading
import time

import jsonschema
import pytest

from regiondag.registry.promote import roll_back
from regiondag.serve.openapi import describe_service
from tests.workflows.serve.served import CUSTOMERS, NIGHTS, make_shop, place, promote, registry_of, serving

BERG = "/v1/regions/berg"
SPEC = describe_service()


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    return make_shop(tmp_path_factory.mktemp("shop"))


@pytest.fixture(scope="module")
def served(shop):
    with serving(shop) as service:
        service.wait_ready()
        yield service


def check(found, name):
    schema = {"$ref": f"#/components/schemas/{name}", "components": SPEC["components"]}
    jsonschema.validate(found, schema, cls=jsonschema.Draft202012Validator)


def test_a_customers_best_items(served):
    found = served.get(f"{BERG}/customers/c7/recommendations?k=4&because=2")
    check(found, "OneAnswer")
    assert (found["study"], found["region"], found["version"], found["customer"]) == ("shop", "berg", NIGHTS[0], "c7")
    assert found["known"] is True and len(found["items"]) == 4
    scores = [one["score"] for one in found["items"]]
    assert scores == sorted(scores, reverse=True)
    assert all(1 <= len(one["because"]) <= 2 for one in found["items"])
    assert all(one["name"] == f"Thing {one['item'][1:]}" for one in found["items"])
    assert served.get("/v1/regions/Berg/customers/c7/recommendations?k=4&study=shop")["items"] == [
        {**one, "because": []} for one in found["items"]
    ]


def test_wishes(served):
    path = f"{BERG}/customers/c7/recommendations"
    plain = [one["item"] for one in served.get(path)["items"]]
    owned = [one["item"] for one in served.get(f"{path}?owned=true&k=24")["items"]]
    assert len(owned) == 24 and set(plain) < set(owned)
    assert [one["item"] for one in served.get(f"{path}?only={plain[2]}&only={plain[1]}")["items"]] == plain[1:3]
    assert [one["item"] for one in served.get(f"{path}?never={plain[0]}&k=2")["items"]] == plain[1:3]


def test_a_customer_who_is_not_known_gets_what_is_popular(served):
    for name in ("nobody", "..%2F..%2Fetc%2Fpasswd", "%F0%9F%92%A9", "c7%20", "a/b"):
        found = served.get(f"{BERG}/customers/{name}/recommendations?k=3")
        assert found["known"] is False and "popularity" in found["by"] and len(found["items"]) == 3


def test_several_customers_are_answered_in_their_order(served):
    names = [f"c{n}" for n in range(CUSTOMERS)] + ["nobody", "c7"]
    status, found, _ = served.ask(f"{BERG}/recommendations", "POST", {"customers": names, "k": 3})
    assert status == 200
    check(found, "Answers")
    assert [one["customer"] for one in found["answers"]] == names
    alone = served.get(f"{BERG}/customers/c7/recommendations?k=3")
    for one in (found["answers"][7], found["answers"][-1]):
        assert [item["item"] for item in one["items"]] == [item["item"] for item in alone["items"]]


def test_a_history_is_answered_for_somebody_unknown(served):
    _, found, _ = served.ask(f"{BERG}/recommendations", "POST", {"history": ["i1", "i5", "unheard of"], "k": 3})
    [answer] = found["answers"]
    assert answer["known"] is True and not {"i1", "i5"} & {one["item"] for one in answer["items"]}
    _, found, _ = served.ask(f"{BERG}/recommendations", "POST", {"history": ["unheard of"], "k": 3})
    assert found["answers"][0]["known"] is False and len(found["answers"][0]["items"]) == 3


def test_regions_and_what_serves_them(served):
    found = served.get("/v1/regions")
    check(found, "Regions")
    assert [(one["region"], one["name"], one["state"]) for one in found["regions"]] == [
        ("berg", "Berg", "serving"),
        ("tal", "Tal", "serving"),
    ]
    facts = served.get(BERG)
    check(facts, "RegionFacts")
    assert facts["test"]["ndcg@20"] == {"value": 0.2, "low": 0.1, "high": 0.3, "popularity": 0.1}
    assert (facts["family"], facts["fitted_until"], facts["customers"], facts["items"]) == (
        "ease",
        "2026-01-01",
        80,
        24,
    )
    assert facts["problem"] == "" and facts["loaded"] >= facts["promoted"] - 1


def test_health_readiness_metrics_and_the_description(served):
    check(served.get("/healthz"), "Health")
    ready = served.get("/readyz")
    check(ready, "Readiness")
    assert ready == {"ready": True, "regions": 2, "serving": 2, "waiting": 0, "failed": 0}
    assert served.get("/openapi.json") == json.loads(json.dumps(SPEC))
    served.ask("/nowhere")
    text = served.get("/metrics")
    assert f'regiondag_champion_info{{study="shop",region="berg",version="{NIGHTS[0]}"}} 1' in text
    assert 'regiondag_requests_total{route="other",status="404"}' in text
    assert 'regiondag_request_seconds_count{route="readiness"}' in text


@pytest.mark.parametrize(
    ("path", "status", "where"),
    [
        ("/v1/regions/nowhere", 404, "region"),
        ("/v1/regions/..%2F..%2Fetc", 404, "address"),
        ("/v1/regions/%00", 400, "region"),
        (f"{BERG}/", 404, "address"),
        (f"{BERG}?study=other", 404, "region"),
        (f"{BERG}/customers//recommendations", 400, "customer"),
        (f"{BERG}/customers/a%00b/recommendations", 400, "customer"),
        (f"{BERG}/customers/a%0d%0aX-Evil:1/recommendations", 404, "address"),
        (f"{BERG}/customers/{'x' * 300}/recommendations", 400, "customer"),
        (f"{BERG}/customers/c7/recommendations?k=1000000000000", 400, "k"),
        (f"{BERG}/customers/c7/recommendations?k=-1&k=2", 400, "k"),
        (f"{BERG}/customers/c7/recommendations?because=11", 400, "because"),
        (f"{BERG}/customers/c7/recommendations?owned=yes", 400, "owned"),
        (f"{BERG}/customers/c7/recommendations?only=%FF", 400, "query"),
        (f"{BERG}/customers/c7/recommendations?only=unheard", 404, None),
        (f"{BERG}/customers/c7/recommendations?nevr=i1", 400, "'nevr'"),
        ("/healthz?x=1", 400, "'x'"),
        ("/v1", 404, "address"),
    ],
)
def test_what_cannot_be_is_refused_with_what_is_legal(served, path, status, where):
    seen, found, headers = served.ask(path)
    check(found, "Failure")
    assert (seen, found["status"]) == (status, status)
    assert [one["where"] for one in found["problems"]] == ([where] if where else [])
    assert all(one["legal"] for one in found["problems"])
    assert headers["cache-control"] == "no-store" and "Traceback" not in str(found)


@pytest.mark.parametrize(
    ("body", "where"),
    [
        (b"", "body"),
        (b"{", "body"),
        (b"\xff\xfe", "body"),
        (b"[" * 100_000, "body"),
        (b'{"k": NaN, "customers": ["a"]}', "body"),
        (b'{"k": ' + b"9" * 5000 + b', "customers": ["a"]}', "body"),
        (b'"text"', "body"),
        ({}, "body"),
        ({"customers": ["a"], "history": ["i1"]}, "body"),
        ({"customers": "a"}, "customers"),
        ({"customers": [1]}, "customers"),
        ({"customers": ["a"] * 1001}, "customers"),
        ({"customers": ["a"] * 1000, "k": 101}, "k"),
        ({"history": ["\u0000"]}, "history"),
        ({"customers": ["a"], "k": 2.0}, "k"),
        ({"customers": ["a"], "__class__": "x"}, "'__class__'"),
    ],
)
def test_bodies_that_cannot_be_read(served, body, where):
    status, found, _ = served.ask(f"{BERG}/recommendations", "POST", body)
    check(found, "Failure")
    assert (status, [one["where"] for one in found["problems"]]) == (400, [where])


def test_other_methods_and_kinds_of_bodies(served):
    status, found, headers = served.ask(BERG, "DELETE")
    assert (status, headers["allow"], found["problems"][0]["where"]) == (405, "GET, HEAD", "method")
    body = b'{"customers": ["c7"]}'
    assert served.ask(f"{BERG}/recommendations", "POST", body, Content_Type="text/plain")[0] == 415
    assert served.ask(f"{BERG}/recommendations", "POST", body, Content_Type="application/json; charset=utf-8")[0] == 200
    assert served.ask("/healthz", "HEAD")[0] == 200


def test_a_name_that_points_here_is_not_this_machine(served):
    status, found, _ = served.ask(BERG, Host="evil.example:80")
    assert status == 421 and found["problems"][0]["where"] == "Host"
    assert served.ask(BERG, Host="127.0.0.1.evil.example")[0] == 421
    assert served.ask(BERG, Host="localhost:1")[0] == 200
    assert served.ask("/healthz", Host="evil.example")[0] == 200


def test_nothing_that_was_asked_is_a_fault(served):
    """Runs after the others of this file only by chance, and says so when one of them was."""
    assert "regiondag_faults_total 0\n" in served.get("/metrics")
    assert "Traceback" not in served.log.read_text()


def test_the_log_has_a_line_for_each_request_without_what_steers_a_terminal(served):
    served.ask(f"{BERG}/customers/a%1b[2Jb/recommendations?k=1&secret=x")
    served.raw(b"GET /\x1b[31mred HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    text = served.log.read_text()
    assert "\x1b" not in text and "secret" not in text
    assert f" 127.0.0.1 GET {BERG}/customers/a%1b[2Jb/recommendations 400 " in text


def test_promotions_and_rollbacks_lose_no_request(tmp_path):
    shop = make_shop(tmp_path, "berg")
    with serving(shop, "--quiet") as served:
        served.wait_for(NIGHTS[0])
        failures, versions, stop = [], set(), threading.Event()

        def load(n):
            connection = http.client.HTTPConnection(served.host, int(served.port), timeout=60)
            while not stop.is_set():
                connection.request("GET", f"{BERG}/customers/c{n}/recommendations?k=3")
                answer = connection.getresponse()
                found = json.loads(answer.read())
                if answer.status != 200 or len(found["items"]) != 3:
                    failures.append(found)
                else:
                    versions.add(found["version"])
            connection.close()

        threads = [threading.Thread(target=load, args=(n,)) for n in (4, 5, 6, 7)]
        for thread in threads:
            thread.start()
        for night in NIGHTS[1:]:
            promote(shop, night, l2=float(night[-9:-7]))
            served.wait_for(night)
        roll_back(registry_of(shop), {"berg": NIGHTS[1]})
        served.wait_for(NIGHTS[1])
        stop.set()
        for thread in threads:
            thread.join()
        assert failures == [] and versions == set(NIGHTS)
        assert 'regiondag_loads_total{result="loaded"} 5\n' in served.get("/metrics")


def test_a_damaged_champion_leaves_the_old_one_and_is_told(tmp_path):
    shop = make_shop(tmp_path, "berg")
    with serving(shop) as served:
        served.wait_for(NIGHTS[0])
        region = place(shop, NIGHTS[1])
        region.champion_model.write_bytes(b"no model")
        facts = json.loads(region.champion_metrics.read_text())
        from nnlib.contract import sha256_of
        from regiondag.registry.promote import promote_region
        from tests.workflows.registry.registered import spec_of

        region.champion_metrics.write_text(json.dumps(facts | {"sha256": sha256_of(region.champion_model)}))
        promote_region(region, spec_of("berg"))
        served.wait(lambda: served.get("/readyz")["failed"] == 1, "the damage is to be seen")
        assert served.get("/readyz") == {"ready": True, "regions": 1, "serving": 1, "waiting": 0, "failed": 1}
        facts = served.get(BERG)
        assert facts["version"] == NIGHTS[0] and facts["problem"] != ""
        assert served.get(f"{BERG}/customers/c7/recommendations")["version"] == NIGHTS[0]
        assert 'regiondag_champion_failed{study="shop",region="berg"} 1' in served.get("/metrics")


def test_a_study_without_champions_is_waited_for(tmp_path):
    shop = make_shop(tmp_path, "berg")
    (tmp_path / "runs").rename(tmp_path / "later")
    with serving(shop) as served:
        status, found, _ = served.ask("/readyz")
        assert (status, found["ready"], found["regions"]) == (503, False, 0)
        check(found, "Readiness")
        assert served.ask("/healthz")[0] == 200
        (tmp_path / "later").rename(tmp_path / "runs")
        served.wait_ready(1)


def test_sigterm_finishes_what_was_asked(tmp_path):
    shop = make_shop(tmp_path, "berg")
    with serving(shop) as served:
        served.wait_ready(1)
        answers = []

        def ask():
            names = [f"c{n % CUSTOMERS}" for n in range(1000)]
            answers.append(served.ask(f"{BERG}/recommendations", "POST", {"customers": names, "because": 3}))

        thread = threading.Thread(target=ask)
        thread.start()
        served.wait(lambda: "regiondag_requests_in_flight 2" in served.get("/metrics"), "the request is to be there")
        assert served.end() == 0
        thread.join()
        assert answers[0][0] == 200 and len(answers[0][1]["answers"]) == 1000


def test_ctrl_c_ends_it(tmp_path):
    with serving(make_shop(tmp_path, "berg")) as served:
        assert served.end(signal.SIGINT) == 130


def test_several_workers_serve_one_address_and_count_together(tmp_path):
    with serving(make_shop(tmp_path, "berg"), "--workers", "2") as served:
        served.wait_ready(1)
        time.sleep(1)
        for _ in range(20):
            served.get(f"{BERG}/customers/c7/recommendations")
        found = served.get("/metrics")
        assert 'regiondag_requests_total{route="one_customer",status="200"} 20\n' in found
        assert served.end() == 0


def test_a_port_that_is_taken_is_told(served, shop):
    argv = [sys.executable, "-m", "regiondag", "serve", shop, "--port", served.port]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    assert (
        done.returncode == 1
        and f"127.0.0.1:{served.port}: cannot be listened to: Address already in use" in done.stderr
    )

"""The figures for Prometheus, by hand."""

import os
import re

from regiondag.serve.metrics import FAULTS, IN_FLIGHT, LOADED, Champions, Counters, render

CHAMPION = Champions("shop", 'b"e\\r\ng', "20260101-033000", 1000.0, 1500.0, False)
LINE = re.compile(
    r'(# (HELP|TYPE) regiondag_\w+ .+|regiondag_\w+(\{\w+="([^"\\\n]|\\.)*"(,\w+="([^"\\\n]|\\.)*")*\})? [\d.e+-]+)'
)


def test_requests_are_counted_by_route_and_status_and_put_into_buckets():
    counters = Counters()
    counters.count("regions", 200, 0.0004)
    counters.count("regions", 200, 0.02)
    counters.count("regions", 401, 99.0)
    text = render(counters, [], 0.0)
    assert 'regiondag_requests_total{route="regions",status="200"} 2\n' in text
    assert 'regiondag_requests_total{route="regions",status="401"} 1\n' in text
    buckets = dict(re.findall(r'request_seconds_bucket\{route="regions",le="([^"]+)"\} (\d+)', text))
    assert (buckets["0.0005"], buckets["0.01"], buckets["0.025"], buckets["10.0"], buckets["+Inf"]) == tuple("11223")
    assert 'regiondag_request_seconds_sum{route="regions"} 99.020400\n' in text
    assert 'regiondag_request_seconds_count{route="regions"} 3\n' in text


def test_a_bound_belongs_to_its_bucket_and_an_unknown_status_is_a_fault():
    counters = Counters()
    counters.count("other", 418, 0.25)
    text = render(counters, [], 0.0)
    assert 'bucket{route="other",le="0.25"} 1' in text and 'bucket{route="other",le="0.1"} 0' in text
    assert 'regiondag_requests_total{route="other",status="500"} 1' in text


def test_champions_have_version_and_age_and_their_names_are_quoted():
    text = render(Counters(), [CHAMPION, Champions("shop", "tal", "", None, None, True)], 1600.0)
    label = 'study="shop",region="b\\"e\\\\r\\ng"'
    assert f'regiondag_champion_info{{{label},version="20260101-033000"}} 1\n' in text
    assert f"regiondag_champion_age_seconds{{{label}}} 600.000\n" in text
    assert f"regiondag_loaded_age_seconds{{{label}}} 100.000\n" in text
    assert 'regiondag_champion_failed{study="shop",region="tal"} 1\n' in text
    assert 'age_seconds{study="shop",region="tal"}' not in text


def test_every_line_is_in_the_format_of_prometheus():
    counters = Counters()
    counters.count("health", 200, 1.0)
    for line in render(counters, [CHAMPION], 1600.0).splitlines():
        assert LINE.fullmatch(line), line


def test_workers_count_apart_and_are_told_together():
    counters = Counters(2)
    counters.add(FAULTS)
    counters.add(IN_FLIGHT)
    pid = os.fork()
    if not pid:
        counters.take(1)
        counters.add(FAULTS, 2)
        counters.add(IN_FLIGHT)
        os._exit(0)
    os.waitpid(pid, 0)
    assert counters.in_flight == 1
    assert counters.sums()[FAULTS] == 3 and counters.sums()[IN_FLIGHT] == 2 and counters.sums()[LOADED] == 0
    counters.take(1)  # begun again
    assert counters.sums()[IN_FLIGHT] == 1

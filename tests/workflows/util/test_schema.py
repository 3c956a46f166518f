"""Values of a study, one at a time: what is legal up to its bounds, and where a mistake stands."""

from __future__ import annotations

import doctest

import pytest

from nnlib.spec.checks import real, whole
from regiondag.util import schema
from regiondag.util.schema import DURATION, OR_NEVER, TEXT, Layer, Problems, Section, choice, nearest, size
from regiondag.util.yaml_file import parse_yaml


def section(yaml: str) -> Section:
    document = parse_yaml(yaml, "s.yaml")
    return Section(Problems(document), [Layer(document.value, ())])


@pytest.mark.parametrize(
    ("value", "bytes_"),
    [("1KB", 1024), ("3MB", 3 * 1024**2), ("2GB", 2 * 1024**3), ("1TB", 1024**4), ("999999KB", 999999 * 1024)],
)
def test_sizes(value, bytes_):
    assert size().of(value) == size(bytes_).of(value) == bytes_
    assert size().of(size().write(bytes_)) == bytes_
    with pytest.raises(ValueError):
        size(bytes_ + 1).of(value)


@pytest.mark.parametrize("value", ["0KB", "KB", "1.5GB", "1 GB", "1gb", "1000000KB", "", 4096, None])
def test_no_sizes(value):
    with pytest.raises(ValueError):
        size().of(value)


@pytest.mark.parametrize(("value", "seconds"), [("1s", 1), ("90s", 90), ("2m", 120), ("2h", 7200), ("3d", 259200)])
def test_durations(value, seconds):
    assert DURATION.of(value) == seconds == OR_NEVER.of(value)
    assert DURATION.of(DURATION.write(seconds)) == seconds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *[(1, "1s"), (59, "59s"), (60, "1m"), (90, "90s"), (120, "2m"), (3600, "1h"), (5400, "90m"), (7200, "2h")],
        *[(86400, "1d"), (90000, "25h"), (604800, "7d")],
    ],
)
def test_durations_are_told_in_the_largest_unit_that_fits(seconds, text):
    assert DURATION.write(seconds) == text


@pytest.mark.parametrize("value", ["0s", "s", "1w", "1.5h", "1000000s", 90, None])
def test_no_durations(value):
    with pytest.raises(ValueError):
        DURATION.of(value)


@pytest.mark.parametrize("check", [whole, real])
def test_numbers_up_to_their_bounds(check):
    assert (check(2, 5).of(2), check(2, 5).of(5)) == (2, 5)
    for wrong in (1, 6, True, "3", None):
        with pytest.raises(ValueError):
            check(0 if wrong is True else 2, 5).of(wrong)


def test_whole_and_real_numbers():
    assert real(2, 5).of(2.5) == 2.5 and type(real(2, 5).of(2)) is float
    for wrong in (float("nan"), float("inf"), 10**400):
        with pytest.raises(ValueError):
            real(0, float("inf")).of(wrong)
    with pytest.raises(ValueError):
        whole(2, 5).of(2.0)


def test_texts_and_choices():
    assert TEXT.of("a b") == "a b" and choice(["a", "b"]).of("b") == "b"
    for wrong in ("", " ", 3):
        with pytest.raises(ValueError, match=r"^$"):
            TEXT.of(wrong)
    with pytest.raises(ValueError, match="control character"):
        TEXT.of("a\nb")
    with pytest.raises(ValueError, match=r"^did you mean 'bayes'\?$"):
        choice(["bayes", "random"]).of("bays")
    with pytest.raises(ValueError, match=r"^$"):
        choice(["bayes"]).of(3)
    assert nearest("xyz", ["bayes"]) == ""
    assert tuple(choice(names).legal for names in ("a", "ab", "abc")) == ("a", "a or b", "a, b or c")


def test_a_section_tells_all_its_mistakes():
    found = section("n: 7\nx: two\nd: 5x\nm: 1KB\nt: ''\nc: bays\ns: 3\nwrong: 1\n")
    values = (
        found.read("n", 1, whole(2, 5)),
        found.read("x", 0.5, real(0, 1)),
        found.read("d", 60, DURATION),
        found.read("m", 9, size(1 << 20)),
    )
    assert values == (1, 0.5, 60, 9)
    assert (found.read("t", "-", TEXT), found.read("c", "random", choice(["bayes", "random"]))) == ("-", "random")
    assert "a" not in found.section("s") and found.read("absent", 4, whole(5, 6)) == 4
    found.finish(["also"])
    assert found.problems.texts() == [
        "s.yaml:1: n: seen 7, legal: a whole number from 2 to 5",
        "s.yaml:2: x: seen 'two', legal: a number from 0 to 1",
        "s.yaml:3: d: seen '5x', legal: a duration such as 90s, 30m, 2h or 1d",
        "s.yaml:4: m: seen '1KB', legal: a size such as 512MB or 4GB, at least 1MB",
        "s.yaml:5: t: seen '', legal: text on one line",
        "s.yaml:6: c: seen 'bays' (did you mean 'bayes'?), legal: bayes or random",
        "s.yaml:7: s: seen 3, legal: a mapping of keys to values",
        "s.yaml:8: wrong: unknown key. Legal keys: absent, also, c, d, m, n, s, t, x",
    ]


def test_what_is_absent_is_told_at_the_nearest_key_around_it():
    found = section("a:\n  x: 1\n  b:\n    c: {}\n")
    lines = [found.problems.line_of(("a", "b", "c", *more)) for more in ((), ("d",), ("d", "e"), ("d", "e", 0))]
    assert lines == [4, 4, 4, 4]
    assert found.problems.line_of(("a", "z")) == 1 and found.problems.line_of(("a", "b", "z")) == 3


REGION = """job: {cpus: 2, gpus: 1}
regions:
  - job: {cpus: 4}
"""


def of_region() -> Section:
    document = parse_yaml(REGION, "s.yaml")
    own, all_ = document.value["regions"][0], document.value
    return Section(Problems(document), [Layer(own, ("regions", 0)), Layer(all_, ())]).section("job")


def test_a_regions_own_value_comes_first():
    job = of_region()
    assert (job.read("cpus", 1, whole(1, 9)), job.read("gpus", 0, whole(1, 9))) == (4, 1)
    assert "gpus" in job and "disk" not in job
    assert (job.where("cpus"), job.where("gpus")) == (("regions", 0, "job", "cpus"), ("job", "gpus"))
    assert job.where("disk") == ("job", "disk")
    job.problems.add(job.where("cpus"), "x")
    job.problems.add(job.where("disk"), "y")
    job.problems.add(("nowhere",), "z")
    assert job.problems.texts() == [
        "s.yaml:1: job.disk: y",
        "s.yaml:1: nowhere: z",
        "s.yaml:3: regions[0].job.cpus: x",
    ]


def test_who_could_see_what():
    """A region sees the study's keys; the study cannot see a region's."""
    job = of_region()
    assert job.contradicts("cpus", "gpus") and not job.contradicts("gpus", "cpus")
    assert job.contradicts("cpus", "disk") and not job.contradicts("disk", "cpus")
    assert job.contradicts("cpus", "cpus") and job.contradicts("gpus", "gpus")


def test_doctests():
    assert doctest.testmod(schema).failed == 0

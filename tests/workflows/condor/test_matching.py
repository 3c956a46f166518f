import doctest
import subprocess
import sys

import pytest

from regiondag.condor import matching
from regiondag.condor.matching import split_conjunction


def test_doctests():
    assert doctest.testmod(matching).failed == 0


@pytest.mark.parametrize(
    ("expression", "parts"),
    [
        ("a", ["a"]),
        ("a && b", ["a", "b"]),
        ("(a && b) && (c)", ["a", "b", "c"]),
        ("a && b || c", ["a && b || c"]),
        ("a && (b ? c : d)", ["a", "b ? c : d"]),
        ("a && b ? c : d", ["a && b ? c : d"]),
        ("a =?= b && c =!= d", ["a =?= b", "c =!= d"]),
        ('x == "a && \\"b" && f(a && b, c)', ['x == "a && \\"b"', "f(a && b, c)"]),
        ("(a) || (b)", ["(a) || (b)"]),
        ("x[a && b] && {c && d} && e", ["x[a && b]", "{c && d}", "e"]),
        ("f(x[(a)] && b)[c] && d", ["f(x[(a)] && b)[c]", "d"]),
        ("'a && b' && c", ["'a && b'", "c"]),
        ('"it\'s" && c', ['"it\'s"', "c"]),
        ("a\\ && b", ["a\\", "b"]),  # outside of a text a backslash is nothing
        ("? a && b", ["? a && b"]),
    ],
)
def test_split(expression, parts):
    assert split_conjunction(expression) == parts


def test_the_first_ad_of_a_process_knows_htcondors_functions():
    text = """
from regiondag.condor.classads import parse_ad
job = parse_ad("Requirements = countMatches(MY.Wanted, TARGET.There) >= 1\\nWanted = Size >= 7\\n")
slot = parse_ad("Requirements = true\\nOne = [ Size = 7 ]\\nThere = { One }\\n")
assert job.symmetricMatch(slot)
"""
    subprocess.run([sys.executable, "-c", text], check=True, timeout=60)

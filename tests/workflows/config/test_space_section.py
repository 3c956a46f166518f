"""`search.space` and `search.constraints`: what each may say, up to its bounds."""

from __future__ import annotations

import pytest

from regiondag.config.space_section import grid_trials, read_constraints, read_space, small_size
from regiondag.study.model import Search
from regiondag.study.space import Choice, Integer, Real
from regiondag.util.schema import Layer, Problems, Section
from regiondag.util.yaml_file import parse_yaml


def read(text: str):
    """Return the space that is written below `x`, and what is said of it."""
    document = parse_yaml("x:\n" + "".join(f"  {line}\n" for line in text.splitlines()), "s.yaml")
    section = Section(Problems(document), [Layer(document.value["x"] or {}, ("x",))])
    return read_space(section, {"momentum"}), section.problems.texts()


@pytest.mark.parametrize(
    ("text", "parameter"),
    [
        ("a: 3", Choice("a", (3,))),
        ("a: word", Choice("a", ("word",))),
        ("a: {choice: [1, true, 0.5, w]}", Choice("a", (1, True, 0.5, "w"))),
        ("a: {choice: [16, 32, 64], ordered: true}", Choice("a", (16, 32, 64), ordered=True)),
        ("a: {choice: [0.5, 0.25, 0], ordered: true}", Choice("a", (0.5, 0.25, 0), ordered=True)),
        ("a: {choice: [small, medium, large], ordered: true}", Choice("a", ("small", "medium", "large"), ordered=True)),
        ("a: {choice: [off, 3, 1], ordered: true}", Choice("a", ("off", 3, 1), ordered=True)),
        ("a: {choice: [3, 1, 2], ordered: false}", Choice("a", (3, 1, 2))),
        ("a: {choice: [5], ordered: true}", Choice("a", (5,), ordered=True)),
        ("a: {real: [0, 1]}", Real("a", 0.0, 1.0)),
        ("a: {real: [0.1, 1], log: true, points: 5}", Real("a", 0.1, 1.0, True, 5)),
        ("a: {real: [0, 0.9], step: 0.1}", Real("a", 0.0, 0.9, step=0.1)),
        ("a: {int: [1, 9]}", Integer("a", 1, 9)),
        ("a: {int: [1, 9], log: true}", Integer("a", 1, 9, True)),
        ("a: {int: [2, 8], step: 3}", Integer("a", 2, 8, step=3)),
        ("a: {int: [2, 4], step: 1}", Integer("a", 2, 4, step=1)),
        ("a: {real: [-1.0e300, 1.0e300]}", Real("a", -1e300, 1e300)),
        ("a: {int: [2, 4], step: 2}", Integer("a", 2, 4, step=2)),
        ("a: {real: [0, 99999], step: 1}", Real("a", 0.0, 99999.0, step=1.0)),
        ("a: {int: [-9007199254740992, 9007199254740992]}", Integer("a", -(2**53), 2**53)),
        ("a: {real: [1, 1.0e300], log: true}", Real("a", 1.0, 1e300, True)),
    ],
)
def test_parameters(text, parameter):
    assert read(text) == ((parameter,), [])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "empty: name at least one"),
        ("a-b: 3", "letters, digits and '_' only"),
        ("\u00e9: 3", "letters, digits and '_' only"),
        ("a: [1]", "seen [1], legal"),
        ("a: .nan", "seen nan, legal"),
        ("a: -.inf", "seen -inf, legal"),
        ("a: {real: [0, 1], int: [0, 1]}", "legal"),
        ("a: {reel: [0, 1]}", "legal"),
        ("a: {real: [1, 1]}", "low must be smaller than high"),
        ("a: {real: [0, 1, 2]}", "[low, high]"),
        ("a: {real: [0, .inf]}", "finite numbers"),
        ("a: {int: [0, 1.5]}", "finite whole numbers"),
        ("a: {int: [0, 9007199254740993]}", "finite whole numbers"),
        ("a: {int: [-9007199254740993, 0]}", "finite whole numbers"),
        ("a: {real: [0, 1.1e300]}", "finite numbers"),
        ("a: {real: [-1.1e300, 0]}", "finite numbers"),
        ("a: {real: [0, 1], log: true}", "a log scale starts above 0"),
        ("a: {real: [1.0e-1, 1.0e300], log: true}", "300 decades"),
        ("a: {real: [0, 1], log: 1}", "true or false"),
        ("a: {real: [0, 1], points: 0}", "points: seen 0"),
        ("a: {real: [0, 1], points: 100000}", "points: seen 100000"),
        ("a: {real: [0, 1], step: 0}", "above 0"),
        ("a: {real: [0, 1], step: 0.3}", "to 1; 0.9 is the last one below"),
        ("a: {real: [0, 1], step: 2}", "0 is the last one below"),
        ("a: {real: [0, 100000], step: 1}", "100000 steps, legal: at most 99999"),
        ("a: {int: [0, 4], step: 1.5}", "step: seen 1.5"),
        ("a: {real: [0, 1], step: 0.5, points: 3}", "no room for `points`"),
        ("a: {real: [1, 2], step: 0.5, log: true}", "no room for `log`"),
        ("a: {choice: []}", "a list of different"),
        ("a: {choice: [1, 1]}", "one stands twice"),
        ("a: {choice: [.nan]}", "a list of different"),
        ("a: {choice: 3}", "a list of different"),
        ("a: {choice: [1], step: 2}", "unknown key"),
        ("a: {choice: [3, 1, 2], ordered: true}", "x.a.choice: seen [3, 1, 2], legal with `ordered: true`: numbers"),
        ("a: {choice: [3, 1, 2], ordered: true}", "that rise or fall, such as [1, 2, 3]"),
        ("a: {choice: [1, 2], ordered: ascending}", "ordered: seen 'ascending', legal: true or false"),
        ("a: {int: [1, 2], ordered: true}", "unknown key"),
        ("a: {ordered: [1, 2]}", "legal: {real: [low, high]}"),
    ],
)
def test_mistakes(text, words):
    _, told = read(text)
    assert len(told) == 1 and words in told[0], told


def test_an_option_is_a_value_of_its_own_kind():
    assert read("a: {choice: [1, true, 1.0]}")[1] == []


PARENTS = "c: {choice: [1, true, w]}\nn: {int: [2, 8], step: 3}\nm: {int: [1, 4]}\nr: {real: [0, 1]}\n"


@pytest.mark.parametrize(
    ("when", "found"),
    [
        ("c: 1", (("c", (1,)),)),
        ("c: [true, w]", (("c", (True, "w")),)),
        ("n: 5", (("n", (5,)),)),
        ("n: [2, 8]", (("n", (2, 8)),)),
        ("m: [1, 2]", (("m", (1, 2)),)),
        ("{c: w, n: 2}", (("c", ("w",)), ("n", (2,)))),
    ],
)
def test_conditions(when, found):
    space, told = read(f"{PARENTS}a: {{int: [1, 4], when: {when if when[0] == '{' else '{' + when + '}'}, default: 3}}")
    assert (space[-1], told) == (Integer("a", 1, 4, when=found, default=3), [])
    assert type(space[-1].when[0][1][0]) is type(found[0][1][0])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{int: [1, 4], when: {c: 2}, default: 3}", "legal: one or a list of the values of 'c': 1, True, w"),
        ("{int: [1, 4], when: {c: []}, default: 3}", "seen []"),
        ("{int: [1, 4], when: {n: 3}, default: 3}", "values of 'n': 2 to 8"),
        ("{int: [1, 4], when: {n: 11}, default: 3}", "seen 11"),
        ("{int: [1, 4], when: {n: -1}, default: 3}", "seen -1"),
        ("{int: [1, 4], when: {r: 1}, default: 3}", "is a real number"),
        ("{int: [1, 4], when: {a: 1}, default: 3}", "is not another hyperparameter"),
        ("{int: [1, 4], when: {zz: 1}, default: 3}", "'zz' is not another"),
        ("{int: [1, 4], when: {c: 1}}", "add default: VALUE"),
        ("{int: [1, 4], default: 3}", "only a parameter with `when`"),
        ("{int: [1, 4], when: {c: 1}, default: [3]}", "a text, a number or true/false"),
    ],
)
def test_wrong_conditions(text, words):
    told = read(f"{PARENTS}a: {text}")[1]
    assert any(words in each for each in told), told


def test_a_setting_that_is_absent_needs_no_default():
    assert read(f"{PARENTS}momentum: {{real: [0, 0.9], when: {{c: 1}}}}")[1] == []
    told = read(f"{PARENTS}momentum: {{real: [0, 0.9], when: {{c: 1}}, default: 0.5}}")[1]
    assert len(told) == 1 and "takes its value from `train`" in told[0]


def test_where_nobody_needs_a_value_a_default_may_be_or_not():
    text = f"{PARENTS}a: {{int: [1, 4], when: {{c: 1}}}}\nb: {{int: [1, 4], when: {{c: 1}}, default: 3}}"
    document = parse_yaml(text, "s.yaml")
    section = Section(Problems(document), [Layer(document.value, ())])
    assert [one.default for one in read_space(section, None)][-2:] == [None, 3]
    assert section.problems.texts() == []


def test_conditions_that_go_round():
    text = "a: {choice: [1, 2], when: {b: 1}, default: 1}\nb: {choice: [1, 2], when: {a: 1}, default: 1}"
    space, told = read(f"{text}\nc: {{choice: [1, 2], when: {{d: 1}}, default: 1}}\nd: 1")
    assert [bool(parameter.when) for parameter in space] == [False, False, True, False]
    assert [each.split(": ", 2)[1] for each in told] == ["x.a.when", "x.b.when"] and "by way of others" in told[0]


SPACE = (Integer("a", 1, 4), Integer("b", 1, 4))


def constraints(*texts: str, space=SPACE):
    document = parse_yaml(f"x: {{constraints: {list(texts)!r}}}", "s.yaml")
    section = Section(Problems(document), [Layer(document.value["x"], ("x",))])
    return read_constraints(section, space), section.problems.texts()


def test_the_order_of_options_says_nothing_to_constraints():
    space = (Choice("size", ("small", "medium", "large"), ordered=True), Choice("batch", (16, 32, 64), ordered=True))
    assert constraints("batch >= 32 or size in ('small', 'medium')", space=space)[1] == []
    assert "not supported between" in constraints("size < batch", space=space)[1][0]


def test_constraints():
    assert constraints("a < b", "a + b > 3") == (("a < b", "a + b > 3"), [])
    assert constraints("a < b", "a > b")[1] == [
        "s.yaml:1: x.constraints: no point of search.space satisfies all of them, as far as sampling can tell"
    ]
    found, told = constraints("a < 9", "a > 9")
    assert len(told) == 1 and told[0].startswith("s.yaml:1: x.constraints[1]: seen 'a > 9', which no point")
    found, told = constraints("a < b", "aa_ < b")
    assert found == () and len(told) == 1 and "constraints[1]" in told[0] and "did you mean 'a'?" in told[0]


def test_how_many_points():
    def search(*constraints: str, space=SPACE, trials: int = 100) -> Search:
        return Search("grid", space, (trials,), constraints)

    assert grid_trials(search()) == 16 and grid_trials(search("a < b")) == 6  # 4 over 2
    assert small_size(search()) == [16] and small_size(search("a < b")) == [6] and small_size(search(trials=5)) == [5]
    assert small_size(search(space=(Real("x", 0.0, 1.0),))) == []
    conditional = (Choice("c", (1, 2)), Integer("a", 1, 4, when=(("c", (1,)),), default=1))
    assert grid_trials(search(space=conditional)) == 5
    assert grid_trials(search(space=(Integer("a", 1, 10**7),))) == 10**7
    with pytest.raises(ValueError, match="10,000,000 points before"):
        grid_trials(search("a < 3", space=(Integer("a", 1, 10**7),)))

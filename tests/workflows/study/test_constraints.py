import pytest

from regiondag.study.constraints import parse_constraint

NAMES = ("hidden", "layers", "optimizer", "shared")


@pytest.mark.parametrize(
    ("text", "point", "holds"),
    [
        ("hidden * layers <= 4096", {"hidden": 1024, "layers": 4}, True),
        ("hidden * layers <= 4096", {"hidden": 1025, "layers": 4}, False),
        ("2 <= layers < 5", {"layers": 5}, False),
        ("-layers + 2 ** 3 // 3 % 2 == -4 and not shared", {"layers": 4, "shared": False}, True),
        ("optimizer != 'sgd' or layers == 1", {"optimizer": "sgd", "layers": 2}, False),
        ("optimizer != 'sgd' or layers == 1", {"optimizer": "sgd", "layers": 1}, True),
        ("layers > 1 and layers < 4", {"layers": 4}, False),
        ("layers > 1 and layers < 4 and not shared", {"layers": 3, "shared": False}, True),
        ("layers < 1 or layers > 4 or shared", {"layers": 3, "shared": True}, True),
        ("optimizer in ['sgd', 'momentum']", {"optimizer": "momentum"}, True),
        ("optimizer not in ('sgd', 'momentum')", {"optimizer": "momentum"}, False),
        ("hidden / layers > 1", {"hidden": 1, "layers": 0}, False),
        ("(0 - hidden) ** 0.5 < 1", {"hidden": 4}, False),
        ("(0 - hidden) ** 0.5 != 1", {"hidden": 4}, False),
        ("hidden ** 9999 < 1", {"hidden": 4}, False),
        ("hidden * layers <= 4", {"hidden": 100}, True),  # layers is inactive
        ("not shared", {"shared": True}, False),
        ("-layers + 5 == 1", {"layers": 4}, True),
        ("+layers == 4", {"layers": 4}, True),
        ("layers - 1 == 3 and layers / 8 == 0.5 and layers * 3 == 12", {"layers": 4}, True),
    ],
)
def test_what_holds(text, point, holds):
    assert parse_constraint(text, NAMES).holds(point) is holds


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("hidden * layrs <= 4", "'layrs' is not a hyperparameter"),
        ("__import__('os').system('x') == 0", "not allowed"),
        ("hidden.real > 1", "not allowed"),
        ("[x for x in (1,)] == hidden", "not allowed"),
        ("hidden if shared else layers", "compares nothing"),
        ("hidden is layers", "not allowed"),
        ("optimizer in shared", "needs a list"),
        ("hidden", "compares nothing"),
        ("hidden <=", "no expression"),
        ("1 < 2", "names no hyperparameter"),
        ("hidden < " + "1 + " * 200 + "1", "at most 500"),
        ("(" * 400 + "hidden", "no expression"),
        ("hidden << 3 > 1", "not allowed"),
        ("(lambda: 1) == hidden", "not allowed"),
        ("hidden == b'x'", "not allowed"),
        ("~" * 490 + "hidden < 1", "nested too deeply"),
    ],
)
def test_what_is_refused(text, words):
    with pytest.raises(ValueError, match=words):
        parse_constraint(text, NAMES)


def test_texts_are_not_numbers():
    with pytest.raises(ValueError, match="not a number"):
        parse_constraint("optimizer * 10 > 3", NAMES).check({"optimizer": "sgd"})
    with pytest.raises(ValueError, match="not supported"):
        parse_constraint("optimizer > 3", NAMES).check({"optimizer": "sgd"})


@pytest.mark.parametrize("text", ["(2 - hidden) ** 0.5 < 9", "hidden / layers < 3", "hidden ** hidden ** hidden < 1"])
def test_what_cannot_be_computed_everywhere_makes_sense_all_the_same(text):
    constraint = parse_constraint(text, NAMES)
    for hidden in (1, 3, 999):
        constraint.check({"hidden": hidden, "layers": 0})

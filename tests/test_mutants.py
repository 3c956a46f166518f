"""``scripts/mutants``: which faults it makes, which tests it asks, and what it calls killed."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.mutation import modules, run
from tests.mutation.operators import mutants, shuffled
from tests.mutation.pool import NOTHING, Pool, Trial

ROOT = Path(__file__).resolve().parents[1]

SOURCE = '''"""Ages."""

def is_adult(age: int, limit: int = 18) -> bool:
    """Return whether a person is an adult."""
    if age < 0:
        raise ValueError(f"{age + 1} years")
    return age >= limit
'''


def changes(source: str) -> set[str]:
    """What one line may become."""
    return {one.after for one in mutants("m", source)}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("a < b", {"a <= b", "a >= b"}),
        ("a == b", {"a != b"}),
        ("a is not b", {"a is b"}),
        ("a not in b", {"a in b"}),
        ("a < b < c", {"a <= b < c", "a >= b < c", "a < b <= c", "a < b >= c"}),
        ("a + b", {"a - b"}),
        ("a // b", {"a / b"}),
        ("a**b", {"a*b"}),
        ("a += b", {"a -= b", "a = b", "pass"}),
        ("a and b and c", {"a or b and c", "a and b or c"}),
        ("not a", {"(a)"}),
        ("-a", {"(a)"}),
        ("a = 3", {"a = 4"}),
        ("a = 0.5", {"a = 1.5"}),
        ("a = 1e30", {"a = 2e+30"}),
        ("a = True", {"a = False"}),
        ("a = b if c else d", {"a = b if (not (c)) else d"}),
        ("[a for a in b if a]", {"[a for a in b if (not (a))]"}),
        ("a(b)", {"pass"}),
        ("a.b = c", {"pass"}),
        ("del a[b]", {"pass"}),
        ("a == 'b'", {"a != 'b'", "a == 'b?'"}),
        ("def f(a='b'): ...", {"def f(a='b?'): ..."}),
        ("def f(): return a", {"def f(): return None"}),
        ("for a in b: continue", {"for a in b: break"}),
        ("raise E(1)", {"pass"}),
        ("é = 'é' + b", {"é = 'é' - b"}),  # places are counted in bytes
    ],
)
def test_what_is_changed(line, expected):
    assert changes(line) == expected


@pytest.mark.parametrize(
    "line",
    [
        "'''A text.'''",
        "a = 'b'",
        "a: int | None",
        "def f(a: Literal[1]) -> Literal[2]: ...",
        "f'{a + 1}'",
        "@d(frozen=True)\nclass A: ...",
        "if TYPE_CHECKING:\n    f()",
        "__all__ = [1]",
        "assert a > 1",
        "zip(a, b, strict=True).x",
        "Optional = int | None",
    ],
)
def test_what_is_left_alone(line):
    assert changes(line) == set()


def test_mutants_can_be_compiled_and_say_where_they_are():
    found = mutants("ages", SOURCE)
    assert [(one.line, one.before, one.after) for one in found if one.line == 7] == [
        (7, "return age >= limit", "return None"),
        (7, "return age >= limit", "return age < limit"),
        (7, "return age >= limit", "return age > limit"),
    ]
    for one in found:
        ast.parse(one.source)
        assert one.source != SOURCE and one.source.count("\n") == SOURCE.count("\n")


def test_a_sample_hangs_on_the_seed_and_on_little_else():
    found = mutants("ages", SOURCE)
    drawn = shuffled(found, 0)
    assert drawn == shuffled(found[::-1], 0) and set(drawn) == set(found)
    assert drawn != shuffled(found, 1)
    longer = mutants("ages", SOURCE.replace('"""Ages."""', '"""Ages."""\n\nYEAR = 12'))
    assert [one.key for one in shuffled(longer, 0) if one.line != 3] == [one.key for one in drawn]


def test_every_module_of_the_core_exists_and_can_be_changed():
    core = modules.core(ROOT)
    assert {"regiondag.accounting.usage", "regiondag.tuning.gp.ask", "nnlib.ops.losses"} <= set(core)
    assert len(set(core)) == len(core)
    assert not {
        "regiondag.generate.render",
        "regiondag.tuning",
        "regiondag.tuning.skopt_method",
        "regiondag.errors",
    } & set(core)
    assert all(modules.path_of(ROOT, name).is_file() for name in core)


def test_the_nearest_tests_are_asked(tmp_path):
    files = {name: tmp_path / name for name in ("test_ages.py", "test_a.py", "test_main.py")}
    for path in files.values():
        path.write_text("")
    tests = {files["test_a.py"]: {"p.ages"}, files["test_ages.py"]: {"p.ages"}, files["test_main.py"]: {"p.main"}}
    imported = {"p.inner": set(), "p.ages": {"p.inner"}, "p.main": {"p.ages"}, "p.alone": set()}
    assert modules.nearest_tests("p.ages", imported, tests) == [files["test_ages.py"], files["test_a.py"]]
    assert set(modules.nearest_tests("p.inner", imported, tests)) == {files["test_ages.py"], files["test_a.py"]}
    assert modules.nearest_tests("p.main", imported, tests) == [files["test_main.py"]]
    assert modules.nearest_tests("p.alone", imported, tests) == []


def test_imports_for_type_checkers_do_not_count(tmp_path):
    path = tmp_path / "m.py"
    path.write_text("import a.b\nfrom c import d\nif TYPE_CHECKING:\n    import e\ndef f():\n    import g\n")
    assert modules.imports(path) == {"a.b", "c", "c.d", "g"}


def test_what_is_known_to_be_no_fault_is_counted_apart(tmp_path):
    found = {"ages": mutants("ages", SOURCE)}
    path = tmp_path / "equivalent.toml"
    entry = '[[mutant]]\nmodule = "ages"\nbefore = "if age < 0:"\nafter = "{}"\nreason = "nobody is"\n'
    path.write_text(entry.format("if age <= 0:"))
    reviewed = run.read_equivalent(path, found)
    outcome = run.Outcome("ages", ())
    run._draw(outcome, found["ages"], reviewed, 0, 100)
    assert (outcome.equivalent, outcome.total) == (1, len(found["ages"]) - 1)
    path.write_text(entry.format("if age > 7:"))
    with pytest.raises(SystemExit, match="no mutant any more"):
        run.read_equivalent(path, found)
    path.write_text(entry.replace("ages", "other").format("x"))
    assert run.read_equivalent(path, found) == {("other", "if age < 0:", "x")}  # not asked about now


@pytest.mark.slow  # all sources are read
def test_the_list_of_those_that_are_no_fault_names_mutants_of_the_core():
    found = {
        name: mutants(name, modules.path_of(ROOT, name).read_text(encoding="utf-8")) for name in modules.core(ROOT)
    }
    assert {key[0] for key in run.read_equivalent(run.EQUIVALENT, found)} <= found.keys()


@pytest.mark.parametrize(("survive", "met"), [(0, True), (1, True), (2, False)])
def test_one_of_twelve_may_survive(survive, met):
    drawn = mutants("ages", SOURCE)[:1] * 12
    outcome = run.Outcome("ages", (), drawn, 0, drawn[:survive])
    assert (outcome.killed, outcome.goal, outcome.met) == (12 - survive, 11, met)
    result = run.to_json([outcome])
    assert result["rows"][0]["ours"] == pytest.approx(100 * (12 - survive) / 12, abs=1e-4)
    assert result["rows"][0]["goal"] == 85
    assert [(one["module"], one["killed"], one["met"]) for one in result["modules"]] == [("ages", 12 - survive, met)]


def test_the_table_names_survivors():
    one = next(one for one in mutants("nnlib.ops.losses", SOURCE) if one.after == "if age <= 0:")
    text = run.table([run.Outcome("nnlib.ops.losses", (), [one], 0, [one])])
    assert "nnlib/ops/losses.py:5\n- if age < 0:\n+ if age <= 0:" in text


@pytest.mark.slow  # a process for each
def test_a_good_test_kills_what_a_useless_one_lets_live(tmp_path):
    package = tmp_path / "ages"
    package.mkdir()
    (package / "__init__.py").write_text("")
    source = package / "adult.py"
    source.write_text(SOURCE)
    head = "from ages.adult import is_adult\n\n"
    texts = {
        "useless": "def test():\n    assert is_adult(30)\n",
        "good": "def test():\n    assert is_adult(18) and not is_adult(17)\n",
        "elsewhere": "import subprocess, sys\n\ndef test():\n"
        "    code = 'from ages.adult import is_adult; assert is_adult(18)'\n"
        "    subprocess.run([sys.executable, '-c', code], check=True)\n",
        "endless": "def test():\n    while not is_adult(18): pass\n",
    }
    for name, text in texts.items():
        (tmp_path / f"test_{name}.py").write_text(head + text)
    before = sorted(path for path in tmp_path.rglob("*") if "__pycache__" not in path.parts)
    changed = SOURCE.replace(">= limit", "> limit")
    trials = [
        Trial("ages.adult", text, (tmp_path / f"test_{name}.py",), 60 if text == SOURCE or name != "endless" else 3)
        for name in texts
        for text in (SOURCE, changed)
    ]
    work = tmp_path / "work"
    work.mkdir()
    ended = Pool(work, 2, tmp_path).run(trials)
    assert [ended[number].told is None for number in range(8)] == [True, True, True, False, True, False, True, False]
    work.rmdir()  # nothing is left there
    assert sorted(path for path in tmp_path.rglob("*") if "__pycache__" not in path.parts) == before
    assert source.read_text() == SOURCE


@pytest.mark.slow  # a process
def test_the_tests_of_this_checkout_run_as_they_do_without_the_tool(tmp_path):
    """With its conftest.py, whose markers must all be known: else no mutant would ever be counted."""
    ended = Pool(tmp_path, 1, ROOT).run([Trial(NOTHING, "", (ROOT / "tests" / "nnlib" / "optim" / "test_rules.py",))])
    assert ended[0].told is None, ended[0].told

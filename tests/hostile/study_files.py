"""Hostile study.yaml: what the syntax allows, what keys are given, and texts that mean something to what reads them."""

from __future__ import annotations

import json

from regiondag.config.keys import JOB, LIMITS, SEARCH, SECTIONS, TRAIN
from regiondag.config.keys import STUDY as TOP
from tests.hostile.inputs import STEERING, Input, content, link, sparse, study

V = "validate study.yaml"
G = "generate study.yaml --out runs --htcondor 23.9"
UK = "name: United Kingdom"
MACROS = "{{ 1111 * 1111 }} {% raw %} $(HOME) $ENV(HOME) `touch owned` $(touch owned) ; touch owned"


def yaml(text: str | bytes):
    return content("study.yaml", text)


def named(name: str, more: str = ""):
    """Write a study with a region of that name."""
    return study((UK, f"name: {json.dumps(name)}"), more=more)


def laughs(levels: int = 30) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 8)}]" for n in range(1, levels)]
    return "\n".join(lines) + "\n"


def merges(levels: int = 22) -> str:
    lines = ["m0: &m0 {k: 1}"]
    lines += [f"m{n}: &m{n} {{<<: [*m{n - 1}, *m{n - 1}], k{n}: 1}}" for n in range(1, levels)]
    return "\n".join(lines) + "\n"


def every_key(value: str) -> str:
    """Return a study all of whose keys, of all sections, have the same value."""
    lines = [f"{key}: {value}" for key in TOP if key not in SECTIONS and key not in ("regions", "limits")]
    for section, keys in (("limits", LIMITS), ("train", TRAIN), ("search", SEARCH), ("job", JOB)):
        lines += [f"{section}:", *(f"  {key}: {value}" for key in keys)]
    lines += [f"regions: [{{name: a, data: {value}}}, {{name: {value}, data: a.nc}}]"]
    return "\n".join(lines) + "\n"


SYNTAX = (
    Input("nothing", yaml(""), V, "empty"),
    Input("a billion aliases", yaml(laughs()), V, "too many nested aliases"),
    Input("merges of merges", study(more=merges()), V, "unknown key"),
    Input("an alias of itself", yaml("regions: &a [*a]\n"), V, "contains itself"),
    Input("brackets without end", yaml("regions: " + "[" * 100_000), V, "nested too deeply"),
    Input("mappings in mappings", yaml("{a: " * 50_000), V, "nested too deeply"),
    Input("indented without end", yaml("".join(" " * n + "a:\n" for n in range(3000))), V, "nested too deeply"),
    Input("a tag that runs", yaml('study: !!python/object/apply:os.system ["touch owned"]\n'), V, "tag"),
    Input("a tag of one's own", yaml("study: !<tag:evil> x\n"), V, "tag"),
    Input("binary", yaml("study: !!binary AAAA\n"), V, "tag"),
    Input("a set", yaml("regions: !!set {a, b}\n"), V, "tag"),
    Input("a number of a million digits", study(("epochs: 2", "epochs: " + "9" * 1_000_000)), V, "no number"),
    Input("a number of 4000 digits", study(("epochs: 2", "epochs: " + "9" * 4000)), V, "epochs"),
    Input("a number beyond all", study(("1e-3, 1e-1", "1e-3, 1e999")), V, "learning_rate"),
    Input("NaN", study(("1e-3, 1e-1", ".nan, .nan")), V, "learning_rate"),
    Input("infinity", study(("epochs: 2", "epochs: .inf")), V, "epochs"),
    Input("a key twice", study(more="metric: ndcg@9\n"), V, "a second time"),
    Input("a key that is a list", yaml("? [a, b]\n: c\n"), V, "plain text"),
    Input("a key of a megabyte", study(more="k" * 1_000_000 + ": 1\n"), V, "."),
    Input("NUL", yaml(b"study: a\0b\n"), V, "not YAML"),
    Input("an escape", yaml("study: a\x1b[2J\n"), V, "not YAML"),
    Input("no UTF-8", yaml(b"study: \xff\xfe\xfd\n"), V, "not UTF-8"),
    Input("UTF-16", yaml("study: a\n".encode("utf-16")), V, "not UTF-8"),
    Input("half of a character", yaml('study: "\\ud800"\n'), V, "half of a character"),
    Input("a character beyond all", yaml('study: "\\U99999999"\n'), V, "character"),
    Input("two documents", study(more="---\nstudy: b\n"), V, "not YAML"),
    Input("a text alone", yaml("x" * 1_000_000), V, "mapping"),
    Input("a terabyte of holes", sparse("study.yaml", 1 << 40), V, "legal"),
    Input("a device without end", link("study.yaml", "/dev/zero"), V, "legal"),
    Input("100 MB of a text", yaml("a: " + "x" * (100 << 20)), V, "legal"),
)
VALUES = (
    Input("all keys a list of lists", yaml(every_key("[[[1]]]")), V, "legal"),
    Input("all keys a mapping", yaml(every_key("{a: {b: 1}}")), V, "legal"),
    Input("all keys nothing", yaml(every_key("null")), V, "legal"),
    Input("all keys true", yaml(every_key("true")), V, "legal"),
    Input("all keys below zero", yaml(every_key("-1")), V, "legal"),
    Input("all keys huge", yaml(every_key("1" + "0" * 300)), V, "legal"),
    Input("all keys NaN", yaml(every_key(".nan")), V, "legal"),
    Input("all keys steer", yaml(every_key(json.dumps(STEERING))), V, "legal"),
    Input("all keys macros", yaml(every_key(json.dumps(MACROS))), V, "legal"),
    Input("all keys a megabyte", yaml(f"x: &x {'y' * 1_000_000}\n" + every_key("*x")), V, "legal"),
    Input("a hyperparameter of code", study(("hidden: {int", "\"__import__('os')\": {int")), V, "__import__"),
    Input(
        "2,000 hyperparameters",
        study(("    hidden:", "".join(f"    h{n}: {{int: [1, 2]}}\n" for n in range(2_000)) + "    hidden:")),
        V,
        "legal",
    ),
    Input("a choice of 10,000", study(("{int: [2, 8], log: true}", f"{{choice: {list(range(10_000))}}}")), V, "."),
    Input("trials without end", study(("rounds: 2", "rounds: 1000000000")), V, "rounds"),
    Input("jobs without end", study(("jobs: 8", "jobs: 100000000000")), V, "jobs"),
    Input(
        "a constraint that runs",
        study(("rounds: 2", "rounds: 2\n  constraints: [\"__import__('os').system('touch owned')\"]")),
        V,
        "constraints",
    ),
    Input(
        "a constraint that never ends",
        study(("rounds: 2", 'rounds: 2\n  constraints: ["9**9**9**9 > hidden"]')),
        V,
        "constraints",
    ),
    Input(
        "a constraint in brackets",
        study(("rounds: 2", f'rounds: 2\n  constraints: ["{"(" * 9000}hidden > 1{")" * 9000}"]')),
        V,
        "constraints",
    ),
    Input("a submit command that queues", study(more='final: {submit: {"x\\nqueue 1000": 1}}\n'), V, "legal"),
    Input(
        "a submit value that queues",
        study(("disk: 100MB", 'disk: 100MB, submit: {accounting_group: "a\\nqueue 9"}')),
        V,
        "legal",
    ),
    Input("another executable", study(("disk: 100MB", "disk: 100MB, submit: {executable: /bin/sh}")), V, "executable"),
    Input("requirements of two lines", study(("disk: 100MB", 'disk: 100MB, requirements: "a\\nqueue 9"')), V, "legal"),
    Input("data that is a device", study(("data/uk.nc", "/dev/zero")), V, "uk|zero"),
    Input("data from elsewhere", study(("data/uk.nc", "../../../../etc/passwd")), V, "passwd"),
    Input("a network from elsewhere", study(("network.json", "/etc/passwd")), V, "passwd"),
    Input("a network that is a device", study(("network.json", "/dev/zero")), V, "zero"),
    Input("regions of the whole disk", study(("regions:\n", "regions: {from: /**/*.nc}\nx:\n")), V, "relative"),
    Input("regions from above", study(("regions:\n", "regions: {from: ../../**/*.none}\nx:\n")), V, "no file"),
    Input(
        "2,000 regions",
        yaml("study: t\nregions:\n" + "".join(f"  - {{name: r{n}, data: r.nc}}\n" for n in range(2_000))),
        V,
        ".",
    ),
    Input("a table at a URL of files", yaml("data: {purchases: 'file:///etc/passwd'}\nfamilies: auto\n"), V, "."),
    Input("a webhook into the machine", study(more="notify: {webhook: 'gopher://127.0.0.1:25/x'}\n"), V, "webhook"),
)
NAMES = (
    Input("a region above", named("../../../owned"), G, "run-", 0, ("runs",)),
    Input("a region of dots", named(".."), G, "run-", 0, ("runs",)),
    Input("a region of options", named("--rf -x"), G, "run-", 0, ("runs",)),
    Input("a region of macros", named(MACROS), G, ".", (0, 1, 2), ("runs",)),
    Input("a region of a macro", named("$(HOME) {{ 1111 * 1111 }}"), G, "run-", 0, ("runs",)),
    Input("a region of DAGMan's words", named("PARENT a CHILD b"), G, "run-", 0, ("runs",)),
    Input("a region of a page", named("<script>alert(1)</script><svg onload=alert(1)>"), G, "run-", 0, ("runs",)),
    Input("a region of quotes", named("a'b\"c\\"), G, ".", (0, 1, 2), ("runs",)),
    Input("a region of lines", named("a\nqueue 1000"), V, "legal"),
    Input("a region of NUL", named("a\0b"), V, "legal"),
    Input("a region that steers", named("a\x1b[2J"), V, "legal"),
    Input("a region written backwards", named("a\u202eb"), V, "legal"),
    Input("a region of other lines", named("a\u2028b"), V, "legal"),
    Input("a region without width", named("\u200b\u2060"), V, "."),
    Input("a region of spaces", named("   "), V, "legal"),
    Input("a region of 100,000 letters", named("a" * 100_000), V, "legal"),
    Input("a region of 200 pictures", named("\U0001f600" * 200), G, ".", 0, ("runs",)),
    Input("regions that look alike", study(("name: Germany", "name: united-kingdom")), V, "rename one"),
    Input("a study of paths", study(("study: tiny", "study: ../../owned")), V, "legal"),
    Input("a study of macros", study(("study: tiny", "study: '$(HOME)'")), V, "legal"),
)
STUDY_FILES = (*SYNTAX, *VALUES, *NAMES)

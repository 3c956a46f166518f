"""YAHPO's folders: their spaces, and what their networks are given."""

from __future__ import annotations

import json

import pytest

from scripts.bench.tuner.problem import Parameter
from scripts.bench.tuner.problems import yahpo

SPACE = {
    "hyperparameters": [
        {"name": "cost", "type": "uniform_float", "log": True, "lower": 0.1, "upper": 10.0},
        {"name": "kernel", "type": "categorical", "choices": ["linear", "radial"]},
        {"name": "repl", "type": "uniform_int", "log": False, "lower": 1, "upper": 10},
        {"name": "task_id", "type": "categorical", "choices": ["31", "4"]},
        {"name": "gamma", "type": "uniform_float", "log": True, "lower": 0.1, "upper": 1.0},
        {"name": "degree", "type": "uniform_int", "log": False, "lower": 2, "upper": 5},
    ],
    "conditions": [
        {"child": "gamma", "parent": "kernel", "type": "EQ", "value": "radial"},
        {"child": "degree", "parent": "kernel", "type": "IN", "values": ["radial"]},
        {"child": "degree", "parent": "cost", "type": "EQ", "value": 1.0},
    ],
}
CODES = {"kernel": {"#na#": 0, "linear": 1, "radial": 2}, "task_id": {"#na#": 0, "31": 1, "4": 2}}
SCENARIO = yahpo.Scenario(
    "task_id", ("task_id", "kernel"), ("gamma", "cost", "repl"), "acc", 1, 100.0, {"repl": 10.0}, 2
)


def test_spaces_have_conditions_and_lack_what_is_given():
    cost, kernel, gamma, degree = yahpo.read_space(SPACE, {"task_id": "4", "repl": 10})
    assert cost == Parameter("cost", 0.1, 10.0, log=True)
    assert kernel == Parameter("kernel", options=("linear", "radial"))
    assert gamma == Parameter("gamma", 0.1, 1.0, log=True, when=(("kernel", ("radial",)),))
    assert degree.whole and degree.when == (("kernel", ("radial",)), ("cost", (1.0,)))


def test_what_cannot_be_read_is_refused():
    odd = {**SPACE, "conditions": [{"child": "gamma", "parent": "cost", "type": "GT", "value": 1}]}
    with pytest.raises(ValueError, match="a condition GT; only EQ and IN"):
        yahpo.read_space(odd, {})
    with pytest.raises(ValueError, match="size is ordinal"):
        yahpo.read_space({"hyperparameters": [{"name": "size", "type": "ordinal"}], "conditions": []}, {})


def test_tasks_are_spread_over_the_list_sorted_by_number():
    assert yahpo.spread(["40", "9", "1", "300", "22", "7"], 3) == ["7", "22", "300"]
    assert yahpo.spread(["40", "9", "1"], 1) == ["9"]


def test_without_data_there_are_no_problems(monkeypatch, tmp_path):
    yahpo.names.cache_clear()
    monkeypatch.delenv(yahpo.VARIABLE, raising=False)
    assert yahpo.names() == ()
    yahpo.names.cache_clear()


def test_a_wrong_path_is_said(monkeypatch, tmp_path):
    pytest.importorskip("onnxruntime")
    monkeypatch.setenv(yahpo.VARIABLE, str(tmp_path))
    yahpo.names.cache_clear()
    with pytest.raises(ValueError, match=r"REGIONDAG_YAHPO: .*config_space.json cannot be read \(No such file"):
        yahpo.names()
    yahpo.names.cache_clear()


@pytest.fixture
def folder(tmp_path):
    """A scenario whose network gives (0, 10 task + kernel + 2 gamma + cost + repl)."""
    pytest.importorskip("onnxruntime")
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper

    inputs = [
        helper.make_tensor_value_info("x_cat", TensorProto.INT32, ["batch", 2]),
        helper.make_tensor_value_info("x_cont", TensorProto.FLOAT, ["batch", 3]),
    ]
    weights = [
        helper.make_tensor("of_categories", TensorProto.FLOAT, [2, 2], [0, 10, 0, 1]),
        helper.make_tensor("of_numbers", TensorProto.FLOAT, [3, 2], [0, 2, 0, 1, 0, 1]),
    ]
    nodes = [
        helper.make_node("Cast", ["x_cat"], ["categories"], to=TensorProto.FLOAT),
        helper.make_node("MatMul", ["categories", "of_categories"], ["first"]),
        helper.make_node("MatMul", ["x_cont", "of_numbers"], ["second"]),
        helper.make_node("Add", ["first", "second"], ["y"]),
    ]
    output = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 2])]
    graph = helper.make_graph(nodes, "tiny", inputs, output, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "model.onnx")
    (tmp_path / "config_space.json").write_text(json.dumps(SPACE))
    (tmp_path / "encoding.json").write_text(json.dumps(CODES))
    return tmp_path


def test_the_network_gets_codes_and_numbers_in_its_order_and_zero_for_what_is_absent(folder):
    problem = yahpo.read_problem("tiny-4", folder, SCENARIO, "4")
    assert problem.source == "yahpo" and problem.kinds == {"numbers", "categories", "conditions"}
    # task 4 has code 2, radial 2, linear 1; repl is 10
    assert problem.true({"cost": 3.0, "kernel": "radial", "gamma": 0.5}) == pytest.approx(1 - 0.36)
    assert problem.true({"cost": 3.0, "kernel": "linear"}) == pytest.approx(1 - 0.34)

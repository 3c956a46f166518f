"""The page about money: its example of a budget is what AWS takes, and it names what the file of a fleet may say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from botocore.loaders import Loader
from botocore.model import ServiceModel
from botocore.validate import ParamValidator

from regiondag.fleet.config import load_fleet

AMI = Path(__file__).parents[2] / "ami"
PAGE = (AMI / "money.md").read_text()


@pytest.fixture(scope="module")
def budget() -> dict[str, object]:
    return json.loads((AMI / "budget.json").read_text())


def test_the_budget_is_what_aws_takes(budget):
    model = ServiceModel(Loader().load_service_model("budgets", "service-2"))
    shape = model.operation_model("CreateBudget").input_shape
    assert not ParamValidator().validate(budget, shape).has_errors()
    assert "aws budgets create-budget --cli-input-json file://budget.json" in PAGE


def test_the_budget_is_of_the_fleets_tag(budget):
    fleet = load_fleet(AMI / "fleet.example.yaml")
    assert budget["Budget"]["CostFilters"] == {"TagKeyValue": [f"user:regiondag:fleet${fleet.name}"]}


def test_the_page_names_the_example(budget):
    fleet = load_fleet(AMI / "fleet.example.yaml")
    assert f"max_spend: {{day: {fleet.max_spend['day']:g}, run: {fleet.max_spend['run']:g}}}" in PAGE
    assert "lease_minutes" in PAGE

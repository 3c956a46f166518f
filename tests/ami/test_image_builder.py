"""The component for EC2 Image Builder: its form, and that it runs the recipe of all images."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

COMPONENT = Path(__file__).parents[2] / "ami" / "image-builder.yml"
SHELLCHECK = shutil.which("shellcheck", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}") or "shellcheck"
ACTIONS = {"ExecuteBash": {"commands"}, "S3Download": {"source", "destination"}}


@pytest.fixture(scope="module")
def component() -> dict:
    return yaml.safe_load(COMPONENT.read_text())


def steps(component: dict) -> list[dict]:
    return [step for phase in component["phases"] for step in phase["steps"]]


def scripts(component: dict) -> list[str]:
    return ["\n".join(step["inputs"]["commands"]) for step in steps(component) if step["action"] == "ExecuteBash"]


def test_its_form(component):
    assert set(component) == {"name", "description", "schemaVersion", "parameters", "phases"}
    assert component["schemaVersion"] == 1.0
    assert [phase["name"] for phase in component["phases"]] == ["build", "validate", "test"]
    for phase in component["phases"]:
        names = [step["name"] for step in phase["steps"]]
        assert names
        assert len(set(names)) == len(names)
    for step in steps(component):
        assert set(step) <= {"name", "action", "inputs", "timeoutSeconds"}
        given = step["inputs"] if isinstance(step["inputs"], list) else [step["inputs"]]
        assert all(set(one) == ACTIONS[step["action"]] for one in given), step["name"]


def test_parameters_are_typed_described_and_used(component):
    declared = {}
    for parameter in component["parameters"]:
        ((name, options),) = parameter.items()
        assert options["type"] == "string"
        assert options["description"]
        assert "default" not in options or isinstance(options["default"], str)
        assert options.get("default", "") in options.get("allowedValues", [options.get("default", "")])
        declared[name] = options
    used = set(re.findall(r"\{\{ (\w+) \}\}", COMPONENT.read_text()))
    assert used == set(declared)


def test_it_runs_the_recipe_of_all_images_after_checking_it(component):
    (build,) = [script for script in scripts(component) if "provision.sh" in script]
    assert build.index("sha256sum --check --strict") < build.index("tar ") < build.index("provision.sh")
    assert "provision.sh --outlet instance --driver '{{ Driver }}' $flag" in build


def test_parameters_are_quoted_wherever_a_shell_reads_them(component):
    for script in scripts(component):
        for found in re.finditer(r"\{\{ \w+ \}\}", script):
            line = script[: found.start()].rpartition("\n")[2]
            assert line.count("'") % 2 == 1, script


def test_its_scripts_are_sound_shell(component):
    for script in scripts(component):
        text = "#!/bin/bash\n" + re.sub(r"\{\{ (\w+) \}\}", r"\1", script) + "\n"
        # SC2086: $flag is empty or one word. SC2050: a parameter stands where a constant seems to be.
        done = subprocess.run(
            [SHELLCHECK, "--exclude=SC2086,SC2050", "-"], input=text, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout


def test_there_is_no_secret():
    assert not re.search(r"AKIA|ASIA|BEGIN [A-Z ]*PRIVATE|eyJ", COMPONENT.read_text())

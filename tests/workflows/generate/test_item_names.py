"""A run keeps what its items are called."""

import json

import pytest

from nnlib.contract import sha256_of
from regiondag.config.load import load_config
from regiondag.generate.item_names import find_items
from tests.workflows.generate.test_write_run import create

LISTED = "unit,item,description\n0,i0,\n1,i1,\n"
NAMED = 'item,description\ni0,"Red, big"\n'


def test_a_table_with_descriptions_comes_before_one_without(study_file):
    config = load_config(study_file)
    assert find_items(config) is None
    imported, own = study_file.parent / "data" / "items.csv", study_file.parent / "items.csv"
    imported.write_text(LISTED)
    assert find_items(config) == imported
    own.write_text(NAMED)
    assert find_items(config) == own
    imported.write_text(LISTED.replace("i1,", "i1,Blue"))
    own.write_text("item,description\ni0,\n")
    assert find_items(config) == imported


@pytest.mark.parametrize("wrong", [b"", b"a,b\n1,2\n", b"item,name\ni0,Red\n", b"item,description\n\xff\xfe,x\n"])
def test_another_file_of_that_name_is_left_alone(study_file, wrong):
    (study_file.parent / "items.csv").write_bytes(wrong)
    assert find_items(load_config(study_file)) is None


def test_the_run_has_a_copy_whose_digest_it_knows(study_file, tmp_path):
    (study_file.parent / "items.csv").write_text(NAMED)
    run = create(study_file, tmp_path / "runs")
    assert run.items.read_text() == NAMED
    manifest = json.loads(run.manifest.read_text())
    assert manifest["sha256"]["items.csv"] == sha256_of(run.items)
    assert manifest["sources"]["items.csv"] == str(study_file.parent / "items.csv")

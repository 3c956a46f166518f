"""What is looked for in the data of all regions before a run is made."""

from __future__ import annotations

import re

import pytest

from regiondag.config.data_check import check_data
from regiondag.config.load import load_config
from regiondag.errors import ConfigError
from tests.workflows.conftest import STUDY, write_study
from tests.workflows.node.test_network_among_families import write_dated


@pytest.mark.parametrize("init", ["champion", "neighbour", "pooled"])
def test_what_trainings_start_from_does_not_know_the_days_that_they_are_asked_about(tmp_path, init):
    study = write_study(tmp_path, STUDY.replace("germany.nc}", f"germany.nc, init: {init}}}"))
    check_data(load_config(study))  # without days nobody can say
    write_dated(tmp_path / "data", "germany", 0)
    if init == "pooled":
        check_data(load_config(study))
        return
    words = f"region 'Germany': init: {init}: such a model has learned from the days on which trials are judged, those "
    with pytest.raises(ConfigError, match=re.escape(words) + "from 2011-01-26 on"):
        check_data(load_config(study))

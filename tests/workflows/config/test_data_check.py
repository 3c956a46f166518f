"""What is looked for in the data of all regions before a run is made."""

from __future__ import annotations

import re

import pytest

from regiondag.config.data_check import check_data
from regiondag.config.load import load_config
from regiondag.errors import ConfigError
from regiondag.generate.fresh_data import refresh_data
from tests.workflows.conftest import STUDY, write_study
from tests.workflows.node.test_network_among_families import write_dated
from tests.workflows.shop import STUDY as SHOP
from tests.workflows.shop import write_shop


def test_buying_again_is_for_data_in_which_it_counts(tmp_path):
    study = write_shop(tmp_path, SHOP.replace("[ease, knn, blend]", "[again]"))
    refresh_data(study)
    words = (
        f"families: again: it ranks what customers have, which {tmp_path}/data/avon.train.nc leaves out; legal where"
    )
    with pytest.raises(ConfigError, match=re.escape(words)) as caught:
        check_data(load_config(study))
    assert len(caught.value.problems) == 1  # and not once for each file
    study.write_text(study.read_text().replace("shop.csv}", "shop.csv, split: {repeats: true}}"))
    refresh_data(study)
    assert {summary.repeats for summary in check_data(load_config(study)).values()} == {True}


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

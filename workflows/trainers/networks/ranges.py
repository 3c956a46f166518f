"""Checks the ranges that study.yaml gives for hyperparameters of families: both ends must be legal for them."""

from __future__ import annotations

from nnlib.contract import Recipe
from regiondag.study.families import FAMILY, list_parameters
from regiondag.study.space import Space, list_extreme_values
from regiondag.util.schema import Problems, Section


def check_ranges(problems: Problems, section: Section, space: Space) -> None:
    """Note what no job would fit; `section` is search.space as it stands in the file, `space` what was read."""
    given = {name for layer in section.layers for name in layer.value} & list_parameters().keys()
    if not given:
        return
    from nnlib.errors import NnlibError  # with NumPy
    from nnlib.families.legal import complete_recipe

    for parameter in space:
        if parameter.name not in given:
            continue
        family = next(values for name, values in parameter.when if name == FAMILY)[0]
        name = parameter.name.removeprefix(f"{family}_")
        for value in list_extreme_values(parameter):
            try:
                complete_recipe(Recipe(str(family), {name: value}))
            except NnlibError as error:
                problems.add(section.where(parameter.name), str(error).removeprefix(f"{family}: {name}: "))

"""A model on data, as the commands that use one ask for it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from nnlib.data.blockwise import Lookup
from nnlib.data.sources import DataSource, open_files
from nnlib.errors import NnlibError
from nnlib.model.file import Model, read_model
from nnlib.prediction.exclusion import Numbered, exclude_by_file, exclude_inputs, targets_are_inputs
from nnlib.prediction.predictor import Prepared, prepare
from nnlib.spec.json_section import show
from nnlib.util import terminal

INPUT, NONE = "input", "none"


class Used:
    """A model, data for it, and the names of both."""

    def __init__(self, model: Path, data: Sequence[Path], supervised: bool = False) -> None:
        """Read a model file and data files; `supervised` when there must be targets."""
        self.model: Model = read_model(model)
        self.data: DataSource = open_files(data)
        self.ready: Prepared = prepare(self.model, self.data.sets, self.data.file, supervised)

    @cached_property
    def samples(self) -> Numbered:
        """The examples."""
        return Numbered(self.ready.examples.count, self.data.samples)

    def features(self, layer: int) -> Numbered:
        """Return the units of a layer."""
        return Numbered(self.ready.network.spec.layers[layer].units or 0, self.ready.names.get(layer, ()))

    def find_excluded(self, text: str | None, layer: int, repeats: bool) -> Lookup | None:
        """Return what an argument (None: was not given) leaves out of the ranking of an Output layer.

        Without one, nothing is left out where buying again counts (`repeats`), nor of targets that are the inputs;
        NnlibError when that is asked for.
        """
        if text == NONE or (text is None and repeats):
            return None
        if text in (None, INPUT):
            if targets_are_inputs(self.model, self.ready, layer):
                if text is not None:
                    name = show(self.model.network.spec.layers[layer].name)
                    raise NnlibError(
                        f"--exclude input: the targets of {name} are the inputs, so every target would be left out, "
                        "legal: none, or a file"
                    )
                tell("the targets are the inputs: nothing is left out of the ranking")
                return None
            found = exclude_inputs(self.model, self.ready, layer)
            if found is None and text is not None:
                name = show(self.model.network.spec.layers[layer].name)
                raise NnlibError(f"--exclude input: no sparse Input layer has the same items as {name}, legal: none")
            return found
        return exclude_by_file(Path(text), self.samples, self.features(layer))


def tell(text: str) -> None:
    """Tell a person something on stderr, unless it is to be quiet."""
    terminal.tell(f"nnlib: {text}")


def tell_mixed(exclude: str | None, model: bool, data: bool) -> None:
    """Tell that a model is measured as the data have it, where `repeats` of the two differ and no argument decides."""
    if exclude is None and model != data:
        ranked = ("has no rank", "is ranked")
        tell(f"what an example has {ranked[data]}, as the data say; in what the model recommends it {ranked[model]}")

"""nnlib from Python: `Network`, `Trainer` and `Predictor`, which do what the commands do, on arrays or files.

Data, everywhere: a SciPy sparse matrix, a two-dimensional NumPy array, an `nnlib.DataSet`, a path to a data file or a
list of paths; for a network of several inputs or outputs a dict of them by data-set name. A row is an example, a
column a unit. Whatever is wrong raises `nnlib.NnlibError`, whose text says what was seen and what is legal; training
that leaves the finite numbers raises its subclass `nnlib.DivergedError`.

For the same bits on machines of any kind, set OPENBLAS_NUM_THREADS=1 before NumPy is imported.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnlib import fitting
from nnlib.architecture import LayerKind, NetworkSpec
from nnlib.blockwise import Lookup
from nnlib.checker import SpecError, shown
from nnlib.contract import COMPAT, TrainSettings
from nnlib.data import from_scipy
from nnlib.devices import AUTO as ANY_DEVICE
from nnlib.devices import chosen, opened
from nnlib.epochlog import Epoch
from nnlib.errors import EvictedError, NnlibError
from nnlib.exclusion import Numbered, excluded_inputs, same_rows
from nnlib.given import given
from nnlib.job import Part, model_of
from nnlib.modelfile import Model, read_model, write_model
from nnlib.predictor import Prepared, layer_number, outputs, prepared, ranked
from nnlib.progress import reporter
from nnlib.settings import check_settings
from nnlib.spec import Value, network_of, read_json
from nnlib.stop import Stop
from nnlib.warmstart import read_init

Floats = NDArray[Any]  # float32

AUTO, INPUTS = "auto", "inputs"


class Network:
    """Layers and how they are connected; once trained or loaded, also weights and the names of units.

    `spec` is everything its JSON says. Made by `from_json`, `load` or `Trainer.fit`, never changed afterwards.
    """

    def __init__(self, spec: NetworkSpec, model: Model | None = None) -> None:
        self.spec = spec
        self.model = model
        self._keeper: fitting.Kept | None = None  # has the checkpoints of its training, until it is saved

    @classmethod
    def from_json(
        cls,
        network: str | Path | Mapping[str, Any],
        hyperparameters: Mapping[str, Value] | None = None,
        compat: str | None = None,
    ) -> Network:
        """Return the untrained network of a file or of the same as a dict.

        `hyperparameters` give the values of its "$name" placeholders. With `compat="dsstne"` the oddities of DSSTNE
        are reproduced, never its defects. Raises NnlibError with every mistake at once, and OSError for the file.
        """
        if compat not in (None, *COMPAT):
            raise NnlibError(f"compat: {compat!r} is not legal, legal: None or 'dsstne'")
        if not isinstance(hyperparameters or {}, Mapping):
            raise NnlibError(f"hyperparameters: {type(hyperparameters).__name__} is not legal, legal: a dict of values")
        path = None if isinstance(network, Mapping) else _path(network, "network", "a path or a dict")
        file = path.name if path is not None else "network"
        values = {name: _plain(value) for name, value in (hyperparameters or {}).items()}
        try:
            raw = read_json(path) if path is not None else _as_json(network)
            spec = network_of(raw, file, values, compat=bool(compat))
        except SpecError as error:
            raise NnlibError(str(error)) from error
        return cls(spec)

    @classmethod
    def load(cls, path: str | Path) -> Network:
        """Return the trained network of a model file, nnlib's or DSSTNE's; DataError says what is wrong with it."""
        model = read_model(_path(path, "path"))
        return cls(model.network.spec, model)

    def save(self, path: str | Path) -> None:
        """Write a model file that nnlib and DSSTNE read, as a whole or not at all.

        The checkpoints of its training, if it had any, are then needed no more and emptied.
        """
        target = _path(path, "path")
        if target.is_dir():
            raise NnlibError(f"{target}: is a folder, legal: the name of a file")
        write_model(target, self._trained())
        fitting.finished(self._keeper)
        self._keeper = None

    def features(self, layer: str) -> tuple[str, ...]:
        """Return the names of the units of an Input or Output layer, empty when they have none."""
        return self._trained().features.get(layer_number(self.spec, layer), ())

    def weights(self, source: str, target: str) -> Floats:
        """Return a copy of the weights between two layers, (units of source, units of target)."""
        network, edge = self._trained().network, self.spec.edges[self._edge(source, target)]
        matrix = network.matrix(edge.owner)
        return np.array(matrix.T if edge.transposed else matrix)

    def biases(self, source: str, target: str) -> Floats:
        """Return a copy of the biases that the connection between two layers adds, (units of target,)."""
        return np.array(self._trained().network.biases[self._edge(source, target)])

    def __repr__(self) -> str:
        layers = " - ".join(f"{layer.name} {layer.units or 'auto'}" for layer in self.spec.layers)
        return f"<nnlib.Network {layers}{'' if self.model else ', not trained'}>"

    def _edge(self, source: str, target: str) -> int:
        pair = layer_number(self.spec, source), layer_number(self.spec, target)
        for edge in self.spec.edges:
            if (edge.source, edge.target) == pair:
                return edge.number
        raise NnlibError(f"no weights lead from {shown(source)} to {shown(target)}")

    def _trained(self) -> Model:
        if self.model is None:
            raise NnlibError("the network has no weights yet; train it with Trainer, or load a model file")
        return self.model


class Trainer:
    """Trains networks; the keywords are those of the command `nnlib train`, with the same defaults.

    `epochs` passes over the examples in batches of `batch`; with validation data training ends after `stop_after`
    epochs without a better metric (0: never). `optimizer` is sgd, momentum, nesterov, adagrad, rmsprop, adadelta, adam
    or adamw, `momentum` and `beta2` its decay rates, `l2` and `l1` what is added to the loss of weights (l2 / 2 w^2,
    l1 |w|). `schedule` is constant or cosine, after `warmup` epochs of a rising rate; `clip` limits the norm of a
    batch's gradient (0: none). `precision="tf32"` lets a GPU round the factors of products to 10 bits, which is faster.
    `threads` is how many to use (all by default), which never changes a bit of the result. `device` is cpu, gpu, or
    auto, which is a GPU where CuPy finds one; gpu without one raises MachineError.

    In the folder `checkpoint` the training is saved every five minutes and at Ctrl-C; the same call goes on from there.
    What is saved stays until `Network.save` has written the network, or until the next `fit`; a folder with the
    checkpoint of another training is refused.
    `progress` shows every epoch on stderr. After `fit`, `history` has what every epoch gave, and `start` what was taken
    over from another model, in words. NnlibError lists every setting outside its range.
    """

    def __init__(
        self,
        network: Network,
        *,
        optimizer: str = "adam",
        epochs: int = 30,
        batch: int = 256,
        learning_rate: float = 0.001,
        momentum: float = 0.9,
        beta2: float = 0.999,
        l2: float = 0.0,
        l1: float = 0.0,
        schedule: str = "constant",
        warmup: float = 0.0,
        clip: float = 0.0,
        stop_after: int = 5,
        seed: int = 1,
        compat: str = "",
        precision: str = "float32",
        threads: int | None = None,
        device: str = ANY_DEVICE,
        checkpoint: str | Path | None = None,
        progress: bool = False,
    ) -> None:
        values = locals()
        _check_network(network)
        self.settings = TrainSettings(**{field.name: _plain(values[field.name]) for field in fields(TrainSettings)})
        check_settings(self.settings, "")
        if compat and not network.spec.compat:
            raise NnlibError('compat: the network was read without it; give compat="dsstne" to Network.from_json too')
        self.network, self.progress = network, progress
        self.history: list[Epoch] = []
        self.start = ""
        self._threads, self._device = _threads(threads), chosen(device)
        self._folder = _path(checkpoint, "checkpoint") if checkpoint is not None else None
        self._keeper: fitting.Kept | None = None  # of the training before

    def fit(
        self,
        inputs: Any,
        targets: Any = None,
        valid: Any = None,
        metric: str = fitting.METRIC,
        init: Network | str | Path | None = None,
    ) -> Network:
        """Return the network trained on `inputs` (n, units) and `targets` (n, units); the one given stays as it is.

        A network with weights goes on from them; one without starts from those of `init`, a trained network or a model
        file, as far as it has layers of the same names, and units, which are found by theirs. Without `targets` those
        in `inputs` are taken, if it is a file or a dict that has them, else the inputs are the targets (an
        autoencoder). `valid` is (inputs, targets), or what has both; with it the epoch whose `metric` is best there is
        returned, else the last. Metrics are p@K, recall@K, ndcg@K, map@K and mrr@K for sparse targets, and loss, which
        is minimized. Items of an example's own input are not ranked where inputs and outputs have the same items,
        unless they are the targets themselves.
        """
        spec = self.network.spec
        learned = _part(spec, inputs, targets)
        held_out = None
        if valid is not None:
            held_out = _part(spec, *valid) if isinstance(valid, tuple) and len(valid) == 2 else _part(spec, valid)
        start = self._model_of(init)
        try:
            task = fitting.task_of(
                self.network.model or spec, learned, held_out, self.settings, metric, device=self._device, init=start
            )
        except SpecError as error:
            raise NnlibError(str(error)) from error
        self.history, self.start = [], task.start
        if self.progress and task.start:
            print(f"starts from a model: {task.start}", file=sys.stderr)
        fitting.finished(self._keeper)
        self._keeper = None
        stop = Stop()
        catching = fitting.stopped_by(stop, (signal.SIGINT,)) if self._folder else nullcontext()
        showing = reporter(self.settings.epochs, metric) if self.progress else nullcontext()
        with showing as screen, catching:

            def report(epoch: Epoch) -> None:
                self.history.append(epoch)
                if screen is not None:
                    screen.epoch(epoch)

            try:
                on_batch = screen.batch if screen is not None else None
                keeper = fitting.keeper_of(task, self._folder, stop)
                found = fitting.run(task, self._threads, report, keeper, on_batch)
            except EvictedError:  # it was Ctrl-C that asked for a stop, and the training is saved
                raise KeyboardInterrupt from None
        trained = Network(found.network.spec, model_of(found.network, learned.sets, learned.region))
        trained._keeper = self._keeper = keeper
        return trained

    def _model_of(self, init: Network | str | Path | None) -> Model | None:
        """Return the model to start from; NnlibError when there is none in `init`, or the network has weights."""
        if init is None:
            return None
        if self.network.model is not None:
            raise NnlibError("init: the network has weights already, legal: an untrained one, of Network.from_json")
        return init._trained() if isinstance(init, Network) else read_init(_path(init, "init", "a Network or a path"))


class Predictor:
    """What a trained network says of examples.

    Units of data that have names are matched with those of the model by name. `threads` is how many to use (all by
    default), which never changes a bit of the result; `device` is that of `Trainer`.
    """

    def __init__(self, network: Network, threads: int | None = None, device: str = ANY_DEVICE) -> None:
        _check_network(network)
        self.network = network
        self._model = network._trained()
        self._threads, self._device = _threads(threads), chosen(device)

    def top_k(
        self, inputs: Any, k: int = 100, exclude: Any = AUTO, layer: str | None = None
    ) -> tuple[NDArray[np.int64], Floats]:
        """Return items and scores, each (n, min(k, units)): the best units of the Output `layer` (the first one).

        Best first, equal scores by number; scores are what the layer gives. `exclude` is what has no rank: "inputs",
        each example's own inputs, for a layer with the same items; "auto", these where there are any; a sparse matrix
        (n, units); or None. An example with fewer than k items left has -1, with a score of -inf.
        """
        if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
            raise NnlibError(f"k: {k!r} is not legal, legal: a whole number from 1")
        ready, output = self._prepared(inputs), layer_number(self.network.spec, layer, LayerKind.OUTPUT)
        excluded = self._excluded(exclude, ready, output)
        with opened(self._device, self._threads) as (compute, each):
            some = ready.rankable(output)
            limits = (each, excluded, None, some)
            blocks = list(ranked(ready.network, ready.examples, output, int(k), *limits, compute))
        width = min(int(k), ready.network.spec.layers[output].units or 0)
        items = [np.empty((0, width), np.int64), *(block.items for block in blocks)]
        return np.concatenate(items), np.concatenate([np.empty((0, width), np.float32), *(b.scores for b in blocks)])

    def outputs(self, inputs: Any, layer: str | None = None) -> Floats:
        """Return what the Output `layer` (the first one) gives, (n, units): probabilities of classes, or values."""
        return self._values(inputs, layer_number(self.network.spec, layer, LayerKind.OUTPUT))

    def embed(self, inputs: Any, layer: str) -> Floats:
        """Return what a Hidden or Output layer gives, (n, units)."""
        number = layer_number(self.network.spec, layer)
        if self.network.spec.layers[number].kind is LayerKind.INPUT:
            raise NnlibError(f"layer {shown(layer)} is an Input, whose values are the data; legal: another layer")
        return self._values(inputs, number)

    def _values(self, inputs: Any, layer: int) -> Floats:
        ready = self._prepared(inputs)
        with opened(self._device, self._threads) as (compute, each):
            blocks = list(outputs(ready.network, ready.examples, layer, each, compute))
        return np.concatenate([np.empty((0, ready.network.spec.layers[layer].units or 0), np.float32), *blocks])

    def _prepared(self, inputs: Any) -> Prepared:
        found = given(self.network.spec, inputs)
        return prepared(self._model, found.sets, found.file)

    def _excluded(self, exclude: Any, ready: Prepared, output: int) -> Lookup | None:
        if exclude is None:
            return None
        if isinstance(exclude, str):
            if exclude not in (AUTO, INPUTS):
                raise NnlibError(f"exclude: {shown(exclude)} is not legal, legal: auto, inputs, None, a sparse matrix")
            found = excluded_inputs(self._model, ready, output)
            if found is None and exclude == INPUTS:
                name = shown(self.network.spec.layers[output].name)
                raise NnlibError(f"exclude: no sparse Input layer has the same items as {name}, legal: None")
            return found
        if not hasattr(exclude, "tocsr"):
            raise NnlibError(
                f"exclude: {type(exclude).__name__} is not legal, legal: auto, inputs, None, a sparse matrix"
            )
        items = ready.network.spec.layers[output].units or 0
        return same_rows(from_scipy(exclude), Numbered(ready.examples.count), Numbered(items))


def _part(spec: NetworkSpec, inputs: Any, targets: Any = None) -> Part:
    found = given(spec, inputs, targets, supervised=True)
    return Part(found.file, found.sets, found.region)


def _path(value: Any, what: str, legal: str = "a path") -> Path:
    if not isinstance(value, str | os.PathLike):
        raise NnlibError(f"{what}: {type(value).__name__} is not legal, legal: {legal}")
    return Path(value)


def _as_json(network: Any) -> Any:
    """Return a dict of Python as what would be read from a file of it: keys are texts, tuples lists."""
    try:
        return json.loads(json.dumps(network, default=_number))
    except (TypeError, ValueError, RecursionError) as error:
        raise NnlibError(f"network: {error}; legal: dicts, lists, texts, numbers, true, false and None") from error


def _number(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} is not legal in a network")


def _check_network(network: Any) -> None:
    if not isinstance(network, Network):
        raise NnlibError(
            f"network: {type(network).__name__} is not legal, legal: an nnlib.Network, of Network.from_json or "
            "Network.load"
        )


def _plain(value: Any) -> Any:
    """Return a number of NumPy as Python's."""
    return value.item() if isinstance(value, np.generic) else value


def _threads(threads: int | None) -> int:
    if threads is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if isinstance(threads, bool) or not isinstance(threads, int | np.integer) or threads < 1:
        raise NnlibError(f"threads: {threads!r} is not legal, legal: a whole number from 1")
    return int(threads)

"""nnlib from Python: `Network`, `Trainer` and `Predictor`, which do what the commands do, on arrays or files.

Data, everywhere: a SciPy sparse matrix, a two-dimensional NumPy array, an `nnlib.DataSet`, a path to a data file or a
list of paths; for a network of several inputs or outputs a dict of them by data-set name. A row is an example, a
column a unit. Whatever is wrong raises `nnlib.NnlibError`, whose text says what was seen and what is legal; training
that leaves the finite numbers raises its subclass `nnlib.DivergedError`.

For the same bits on machines of any kind, set OPENBLAS_NUM_THREADS=1 before NumPy is imported.
"""

from __future__ import annotations

import signal
import sys
from contextlib import nullcontext
from dataclasses import fields
from pathlib import Path
from typing import Any

from nnlib.api.arguments import _part, _path, _plain, _threads
from nnlib.api.network import Network
from nnlib.contract import TrainSettings
from nnlib.devices import AUTO as ANY_DEVICE
from nnlib.devices import choose_device
from nnlib.epoch_log import Epoch
from nnlib.errors import EvictedError, NnlibError
from nnlib.model.file import Model, model_of
from nnlib.model.warm_start import read_init
from nnlib.spec.json_section import SpecError
from nnlib.training import fit
from nnlib.training.settings import check_settings
from nnlib.training.stop import Stop
from nnlib.util.terminal import show_training


class Trainer:
    """Trains networks; the keywords are those of the command `nnlib train`, with the same defaults.

    `epochs` passes over the examples in batches of `batch`, of which `accumulate` make one update. With validation data
    training ends after `stop_after` epochs without a better metric (0: never), or, if it is above 0, after
    `stop_after_examples` examples. `optimizer` is sgd, momentum, nesterov, adagrad, rmsprop, adadelta, adam or adamw,
    `momentum` and `beta2` its decay rates, `l2` and `l1` what is added to the loss of weights (`l2 / 2 w^2`, `l1 |w|`).
    `schedule` is constant, cosine, onecycle, step or plateau, after `warmup` epochs of a rising rate; the last two
    multiply the rate by `decay_rate` after `decay_epochs` epochs, plateau after such without a better metric.
    `scale_rate` multiplies it by the examples of an update / `base_batch` (linear) or its root (sqrt). `ema` is the
    decay of a mean of the weights, which is then measured and kept (0: none). `clip` limits the norm of an update's
    gradient (0: none). `precision="tf32"` lets a GPU round the factors of products to 10 bits, `"bf16"` rounds them
    to 7, both with sums in float32; `"auto"` is tf32 on GPUs from Ampere on, bf16 where a processor is
    faster with it (AMX with oneMKL, AMD's AVX-512 with Numba), else float32.
    `parallel` is how a training is cut into shards: items, none, auto, which cuts wide layers by items, or examples,
    which cuts batches of dense data, images among them.
    `threads` is how many to use (all by default), which never changes a bit of the result. `device` is cpu, gpu, or
    auto, which is a GPU where CuPy finds one; gpu without one raises MachineError. `ranks` (1, 2, 4, 8) is how many
    processes share a network that `parallel` cuts, and the threads: it never changes a bit either.

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
        accumulate: int = 1,
        learning_rate: float = 0.001,
        momentum: float = 0.9,
        beta2: float = 0.999,
        l2: float = 0.0,
        l1: float = 0.0,
        schedule: str = "constant",
        warmup: float = 0.0,
        decay_rate: float = 0.5,
        decay_epochs: int = 3,
        scale_rate: str = "none",
        base_batch: int = 256,
        ema: float = 0.0,
        clip: float = 0.0,
        stop_after: int = 5,
        stop_after_examples: int = 0,
        seed: int = 1,
        compat: str = "",
        precision: str = "float32",
        parallel: str = "auto",
        threads: int | None = None,
        device: str = ANY_DEVICE,
        ranks: int = 1,
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
        self._threads, self._device, self._ranks = _threads(threads), choose_device(device), _plain(ranks)
        self._folder = _path(checkpoint, "checkpoint") if checkpoint is not None else None
        self._keeper: fit.FolderCheckpoints | None = None  # of the training before

    def fit(
        self,
        inputs: Any,
        targets: Any = None,
        valid: Any = None,
        metric: str = fit.METRIC,
        init: Network | str | Path | None = None,
    ) -> Network:
        """Return the network trained on `inputs` (n, units) and `targets` (n, units); the one given stays as it is.

        A network with weights goes on from them; one without starts from those of `init`, a trained network or a model
        file, as far as it has layers of the same names, and units, which are found by theirs. Without `targets` those
        in `inputs` are taken, if it is a file or a dict that has them, else the inputs are the targets (an
        autoencoder). `valid` is (inputs, targets), or what has both; with it the epoch whose `metric` is best there is
        returned, else the last. Metrics are p@10, ndcg@20 and the like for sparse targets (`nnlib.evaluation.metrics`
        has all), and loss, which is minimized. Items of an example's own input are not ranked where inputs and outputs
        have the same items, unless they are the targets themselves.
        """
        spec = self.network.spec
        learned = _part(spec, inputs, targets)
        held_out = None
        if valid is not None:
            held_out = _part(spec, *valid) if isinstance(valid, tuple) and len(valid) == 2 else _part(spec, valid)
        start = self._model_of(init)
        try:
            task = fit.task_of(
                self.network.model or spec,
                learned,
                held_out,
                self.settings,
                metric,
                "",
                self._device,
                start,
                self._ranks,
            )
        except SpecError as error:
            raise NnlibError(str(error)) from error
        self.history, self.start = [], task.start
        if self.progress and task.start:
            print(f"starts from a model: {task.start}", file=sys.stderr)
        fit.forget_checkpoints(self._keeper)
        self._keeper = None
        stop = Stop()
        catching = fit.stop_at(stop, (signal.SIGINT,)) if self._folder else nullcontext()
        showing = show_training(self.settings.epochs, metric) if self.progress else nullcontext()
        with showing as screen, catching:

            def report(epoch: Epoch) -> None:
                self.history.append(epoch)
                if screen is not None:
                    screen.epoch(epoch)

            try:
                on_batch = screen.batch if screen is not None else None
                keeper = fit.keeper_of(task, self._folder, stop)
                found = fit.run(task, self._threads, report, keeper, on_batch)
            except EvictedError:  # it was Ctrl-C that asked for a stop, and the training is saved
                raise KeyboardInterrupt from None
        trained = Network(found.network.spec, model_of(found.network, learned.sets, learned.region, learned.repeats))
        trained._keeper = self._keeper = keeper
        return trained

    def _model_of(self, init: Network | str | Path | None) -> Model | None:
        """Return the model to start from; NnlibError when there is none in `init`, or the network has weights."""
        if init is None:
            return None
        if self.network.model is not None:
            raise NnlibError("init: the network has weights already, legal: an untrained one, of Network.from_json")
        return (
            init._require_model()
            if isinstance(init, Network)
            else read_init(_path(init, "init", "a Network or a path"))
        )


def _check_network(network: Any) -> None:
    if not isinstance(network, Network):
        raise NnlibError(
            f"network: {type(network).__name__} is not legal, legal: an nnlib.Network, of Network.from_json or "
            "Network.load"
        )

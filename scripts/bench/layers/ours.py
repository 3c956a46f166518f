"""Our side: `python -m scripts.bench.layers.ours WHAT FOLDER AMOUNT` leaves files in the folder."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nnlib.util.threads import Each, take_over_blas, workers

THREADS = take_over_blas()  # before NumPy

import numpy as np  # noqa: E402
from sklearn.datasets import load_digits  # noqa: E402

from nnlib.contract import TrainSettings  # noqa: E402
from nnlib.cpu.backend import Cpu  # noqa: E402
from nnlib.cpu.backward import backward  # noqa: E402
from nnlib.cpu.evaluator import CpuEvaluator  # noqa: E402
from nnlib.cpu.forward import Forward, Values  # noqa: E402
from nnlib.cpu.gradients import Gradients  # noqa: E402
from nnlib.cpu.maps.pooling import pool, pool_gradient, respond, respond_gradient  # noqa: E402
from nnlib.data.sets import as_data_set  # noqa: E402
from nnlib.model.batches import batch_of, epoch_order, generator_for  # noqa: E402
from nnlib.model.examples import Examples, examples_of, resolve  # noqa: E402
from nnlib.model.network import Network, create, iterate_owners  # noqa: E402
from nnlib.spec.types import LocalResponse, NetworkSpec, PoolingFunction  # noqa: E402
from scripts.bench.layers import cases  # noqa: E402
from scripts.bench.layers.cases import Arrays, Case, Lesson  # noqa: E402


def main() -> None:
    """Do what the command line says."""
    what, folder, amount = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    acts: dict[str, Callable[[Path, int, Each], Arrays]] = {
        "layers": layers, "speed": speed, "networks": networks, "lessons": lessons
    }  # fmt: skip
    with workers(THREADS) as each, np.errstate(all="ignore"):
        np.savez(folder / f"{what}.ours.npz", **acts[what](folder, amount, each))


def layers(_: Path, count: int, each: Each) -> Arrays:
    """Return what random layers give, and their gradients."""
    found: Arrays = {}
    for case in cases.random_cases(count):
        found[f"{case.seed} a"], found[f"{case.seed} below"] = layer_of(case, each)()
    return found


def speed(_: Path, rounds: int, each: Each) -> Arrays:
    """Return the milliseconds of a layer forward and back, the median of some rounds."""
    timed = cases.TIMED if rounds > 1 else cases.SHORT
    return {name: cases.milliseconds(layer_of(case, each), rounds) for name, case in timed.items()}


def layer_of(case: Case, each: Each) -> Callable[[], tuple[Any, Any]]:
    """Return what computes a layer and its gradient."""
    (x, delta), sweep = case.arrays(), case.sweep
    if case.kind == cases.NORM:
        return _norm_of(case, x, delta, each)
    if case.kind == cases.RESPONSE:
        n, alpha, beta, k = cases.RESPONSES
        rule = LocalResponse(k, n, alpha, beta)
        return lambda: (respond(rule, x, sweep.source, each), respond_gradient(rule, x, delta, sweep.source, each))
    function = PoolingFunction(case.kind)

    def both() -> tuple[Any, Any]:
        a = pool(function, x, sweep, each)
        return a, pool_gradient(function, x, a, delta, sweep, each)

    return both


def _norm_of(case: Case, x: Any, delta: Any, each: Each) -> Callable[[], tuple[Any, Any]]:
    size = [*case.sweep.source.sizes[::-1], case.channels]
    normed = {"Name": "A", "Kind": "Hidden", "Type": "Pooling", "Function": "Sum", "BatchNormalization": True}
    forward = Forward(network_of(cases.spec_of([normed], size), 1), each)
    node = forward.nodes[1]

    def both() -> tuple[Any, Any]:
        values = Values(out={0: x})
        a = forward.maps.compute(node, values, training=True)
        return a, forward.maps.norm_backward(node, values, delta, Gradients(forward.network))

    return both


def network_of(spec: NetworkSpec, seed: int) -> Network:
    """Return a network with weights of its own."""
    return create(spec, generator_for(seed, 0))


def parameters_of(network: Network, arrays: Arrays) -> Arrays:
    """Return arrays of a network's parameters by name, the weights as (in, out)."""
    spec = network.spec
    stores = {edge.number: arrays[f"weights{edge.number}"] for edge in iterate_owners(spec)}
    shaped = Network(spec, stores, network.biases, {})
    found = {name: array for name, array in arrays.items() if not name.startswith("weights")}
    return found | {f"weights{owner}": shaped.matrix(owner) for owner in stores}


def networks(folder: Path, count: int, each: Each) -> Arrays:
    """Return the gradients and values of whole networks on a batch; leave their parameters in the folder."""
    found: Arrays = {}
    for name, hidden in list(cases.NETWORKS.items())[:count]:
        network = network_of(cases.spec_of(hidden), 1)
        np.savez(folder / f"{name}.start.npz", **parameters_of(network, dict(network.arrays())))
        x, labels = cases.batch()
        examples = bound(network.spec, x, labels)
        batch = batch_of(network.spec, examples, np.arange(len(x)))
        forward, gradients = Forward(network, each), Gradients(network)
        values = forward.run(batch.inputs, training=True)
        found[f"{name} loss"] = backward(forward, values, batch.targets, gradients) / len(x)
        given = parameters_of(network, dict(gradients.arrays()))
        found |= {f"{name} gradient {n}": g for n, g in given.items() if not n.endswith(("_mean", "_variance"))}
        found |= {f"{name} {n}": a for n, a in network.arrays() if n.endswith(("_mean", "_variance"))}
        found[f"{name} asked"] = CpuEvaluator(network, each, split=True).sums(examples, len(network.spec.layers) - 1)
    return found


def bound(spec: NetworkSpec, x: Any, labels: Any) -> Examples:
    """Return pictures and classes as examples of a network."""
    data = {"x": as_data_set("x", x), "y": as_data_set("y", np.eye(cases.CLASSES)[labels].astype(np.float32))}
    return examples_of(resolve(spec, data, "pictures"), data, "pictures")


def lessons(folder: Path, seeds: int, each: Each) -> Arrays:
    """Return the accuracy of a network trained from each seed; leave pictures, starts and orders in the folder."""
    lesson, spec, accuracies = Lesson(1 if seeds == 1 else 12), cases.spec_of(cases.LEARNER), []
    digits = load_digits()
    x, labels = cases.pictures(digits.images), digits.target
    np.savez(folder / "pictures.npz", x=x, labels=labels)
    examples, count = bound(spec, x, labels), len(x) - lesson.tested
    for seed in range(1, seeds + 1):
        network = network_of(spec, seed)
        orders = np.stack([epoch_order(seed, epoch, count, True) for epoch in range(lesson.epochs)])
        start = parameters_of(network, dict(network.arrays()))
        np.savez(folder / f"lesson{seed}.start.npz", **start, orders=orders)
        settings = TrainSettings(batch=lesson.batch, learning_rate=lesson.rate, optimizer="adam")
        engine = Cpu(each).engine(network, examples, settings)
        for order in orders:
            lows = range(0, count - lesson.batch + 1, lesson.batch)
            for batch in engine.batches(order[low : low + lesson.batch] for low in lows):
                engine.run(batch)
        sums = engine.evaluator().sums(examples.take(np.arange(count, len(x))), len(spec.layers) - 1)
        accuracies.append(float((sums.argmax(axis=1) == labels[count:]).mean()))
        print(json.dumps({"seed": seed, "accuracy": accuracies[-1]}), flush=True)
    return {"accuracies": np.array(accuracies)}


if __name__ == "__main__":
    main()

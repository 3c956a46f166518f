"""The peers: a network is trained on sequences, and says the best items of those who are asked.

    python -m scripts.bench.sequences.peer PROBLEM ANSWER '{"kind": "gru", ...}'

PROBLEM has `valid` and `test`, each with what is learned from, who is asked and what he wants. The epoch that is best
by NDCG@10 on `valid` counts; with `refit`, a network is trained for so many epochs on what `test` is learned from.
"""

from __future__ import annotations

import copy
import json
import math
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from scripts.bench.sequences.metrics import measure
from scripts.bench.sequences.nets import KINDS, Network
from scripts.bench.sequences.peers import Settings
from scripts.bench.sequences.windows import NOTHING, Histories, Part, batches, count_from_end, spread

KEPT = 100
ASKED = 256  # customers at once


def read(file: Mapping[str, Any], part: str) -> Part:
    """Return a part of a problem."""
    width, as_of = int(file["width"]), int(file[f"{part}_as_of"])

    def histories(name: str) -> Histories:
        indptr, items, days = (file[f"{part}_{name}_{key}"] for key in ("indptr", "items", "days"))
        return Histories(indptr, items, days, width, as_of)

    return Part(histories("fit"), histories("asked"), histories("wanted"))


def make(settings: Settings, items: int) -> Network:
    """Return a new network; the same seed gives the same one."""
    torch.manual_seed(settings.seed)
    return KINDS[settings.kind](items, settings.width, settings.dropout, settings.length)


def loss_of(network: Network, states: Tensor, targets: Tensor, weights: Tensor, negatives: int) -> Tensor:
    """Return the cross entropy of the softmax over all items, or over a sample that stands for them.

    With m items drawn uniformly of I - 1 others their sum is weighted (I - 1) / m, so that it is that of all in the
    mean.
    """
    items = len(network.bias)
    if negatives >= items:
        each = torch.nn.functional.cross_entropy(network.scores(states), targets, reduction="none")
        return (weights * each).sum() / weights.sum()
    drawn = torch.randint(items, (negatives,))
    right = (states * network.items(targets)).sum(1) + network.bias[targets]
    others = torch.addmm(network.bias[drawn], states, network.items(drawn).T) + math.log((items - 1) / negatives)
    others = others.masked_fill(drawn == targets[:, None], -torch.inf)
    each = torch.logaddexp(others.logsumexp(1), right) - right
    return (weights * each).sum() / weights.sum()


def train_epoch(network: Network, optimizer: torch.optim.Optimizer, fit: Histories, settings: Settings, n: int) -> None:
    """Go through all sequences once."""
    network.train()
    random = np.random.default_rng([settings.seed, n])
    torch.manual_seed(1000 * settings.seed + n)
    for batch in batches(
        fit,
        length=settings.length,
        size=settings.batch,
        ahead=settings.ahead,
        half_life=settings.half_life,
        random=random,
    ):
        targets = torch.from_numpy(batch.targets)
        some = targets != NOTHING
        if not some.any():
            continue
        states = network(torch.from_numpy(batch.taken), torch.from_numpy(batch.places))[some]
        weights = torch.from_numpy(batch.weights)[some]
        optimizer.zero_grad(set_to_none=True)
        loss_of(network, states, targets[some], weights, settings.negatives).backward()
        optimizer.step()


@torch.inference_mode()  # type: ignore[untyped-decorator]
def best_items(network: Network, asked: Histories, length: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return the KEPT best items (customers, KEPT) that each does not have, and their scores."""
    network.eval()
    found, values = [], []
    for low in range(0, asked.customers, ASKED):
        starts, ends = asked.indptr[low : low + ASKED], asked.indptr[low + 1 : low + ASKED + 1]
        starts = starts[: len(ends)]
        places, inside = spread(np.maximum(starts, ends - length), ends)
        states = network(
            torch.from_numpy(np.where(inside, asked.items[places], 0)), torch.from_numpy(count_from_end(inside, length))
        )
        scores = network.scores(states[torch.arange(len(ends)), torch.from_numpy(inside.sum(axis=1) - 1)])
        rows = np.repeat(np.arange(len(ends)), ends - starts)
        scores[torch.from_numpy(rows), torch.from_numpy(asked.items[starts[0] : ends[-1]])] = -torch.inf
        best = scores.topk(min(KEPT, scores.shape[1]), dim=1)
        found.append(best.indices.numpy().astype(np.int32))
        values.append(best.values.numpy())
    return np.concatenate(found), np.concatenate(values)


def fit(settings: Settings, valid: Part) -> tuple[Network, list[float], list[float]]:
    """Return the network of the best epoch, NDCG@10 after each epoch, and the processor's seconds of each."""
    network = make(settings, valid.fit.width)
    optimizer = torch.optim.Adam(network.parameters(), settings.learning_rate)
    best, curve, seconds = copy.deepcopy(network.state_dict()), [], []
    for n in range(settings.epochs):
        began = time.process_time()
        train_epoch(network, optimizer, valid.fit, settings, n)
        seconds.append(time.process_time() - began)
        found = best_items(network, valid.asked, settings.length)[0]
        curve.append(float(measure(found, valid.wanted)[:, 0].mean()))
        print(f"{settings.kind} epoch {n + 1}: {curve[-1]:.4f}, {seconds[-1]:.1f} s", file=sys.stderr, flush=True)
        if curve[-1] == max(curve):
            best = copy.deepcopy(network.state_dict())
        elif n - int(np.argmax(curve)) >= settings.patience:
            break
    network.load_state_dict(best)
    return network, curve, seconds


def fit_as_long(settings: Settings, part: Part) -> tuple[Network, list[float]]:
    """Return a network trained for `refit` epochs, and the processor's seconds of each."""
    network, seconds = make(settings, part.fit.width), []
    optimizer = torch.optim.Adam(network.parameters(), settings.learning_rate)
    for n in range(settings.refit):
        began = time.process_time()
        train_epoch(network, optimizer, part.fit, settings, n)
        seconds.append(time.process_time() - began)
    return network, seconds


def main(problem: str, answer: str, given: str) -> None:
    """Train, rank and write what was found."""
    settings = Settings(**json.loads(given))
    curve: list[float] = []
    lists: dict[str, Any] = {}
    torch.set_num_threads(1)
    with np.load(problem) as file:
        valid, test = read(file, "valid"), read(file, "test")
    if settings.refit:
        network, seconds = fit_as_long(settings, test)
    else:
        network, curve, seconds = fit(settings, valid)
        lists["valid_items"], lists["valid_scores"] = best_items(network, valid.asked, settings.length)
    began = time.process_time()
    lists["test_items"], lists["test_scores"] = best_items(network, test.asked, settings.length)
    asking = time.process_time() - began
    parameters = sum(each.numel() for each in network.parameters())
    made = Path(answer).with_suffix(".part.npz")
    np.savez(made, curve=curve, seconds=seconds, asking=asking, parameters=parameters, **lists)
    made.rename(answer)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""How many customers a second a core gets the best items for, beside implicit and PyTorch."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import sparse

from nnlib.families.ials import DEFAULTS, half_step
from nnlib.families.knn import find_neighbours
from scripts.bench.common.child import Child
from scripts.bench.common.environments import implicit_python, torch_python
from scripts.bench.common.harness import Bench, Row, main
from scripts.bench.common.processes import ONE_THREAD
from scripts.bench.recommend import problem
from scripts.bench.recommend.problem import FACTORS, ITEM_ITEM, SOLVED, K

BENCH = "recommend"
SECONDS = 300.0  # that a side may take to get ready, or for a turn
DIMS, NEIGHBOURS = 64, 100


@dataclass(frozen=True)
class Sizes:
    """All sizes and numbers of repeats."""

    items: int = 20_000
    customers: int = 100_000
    mean: int = 30  # items of a customer
    block: int = 4096  # customers of a turn
    turns: int = 9


QUICK = Sizes(items=2000, customers=5000, block=1024, turns=3)


class Recommending(Bench[Sizes]):
    """The rows."""

    def item_item(self) -> Iterator[Row]:
        """Each item's 100 nearest, summed over a history."""
        yield from self._rows(ITEM_ITEM, ITEM_ITEM, "100 neighbours", ("implicit", "torch"))

    def factors(self) -> Iterator[Row]:
        """Factors of items: ours solves for the customer's, the peers know them."""
        yield from self._rows(FACTORS, FACTORS, "64 factors, the peer's customers known", ("implicit", "torch"))

    def solved(self) -> Iterator[Row]:
        """Factors of items, customers solved for by both."""
        yield from self._rows(SOLVED, SOLVED, "64 factors, customers solved for", ("implicit",))

    def _rows(self, ours: str, theirs: str, what: str, peers: Sequence[str]) -> Iterator[Row]:
        self._prepare()
        folder, block, env = str(self.area), str(self.sizes.block), dict(ONE_THREAD)
        pythons = {"implicit": implicit_python, "torch": torch_python}
        with ExitStack() as stack:
            sides = {"ours": stack.enter_context(Child(sys.executable, "recommend.ours", ours, folder, block, env=env))}
            for peer in peers:
                child = Child(pythons[peer](), f"recommend.{peer}_side", theirs, folder, block, env=env)
                sides[peer] = stack.enter_context(child)
            for side in sides.values():
                side.answer(SECONDS)
            rounds = [
                {name: side.ask("turn", SECONDS) for name, side in sides.items()} for _ in range(self.sizes.turns)
            ]
        rates = {name: statistics.median(self.sizes.block / one[name]["seconds"] for one in rounds) for name in sides}
        fastest = max(peers, key=lambda name: rates[name])
        ratio = statistics.median(one[fastest]["seconds"] / one["ours"]["seconds"] for one in rounds)
        same = "; ".join(f"{name} {_overlap(rounds, name):.1%}" for name in peers)
        others = ", ".join(f"{name} {rates[name]:,.0f}" for name in peers)
        note = f"peers: {others} customers/s a core; lists that begin alike: {same}; median ratio {ratio:.2f}"
        name = f"{what}, {self.sizes.items:,} items, {fastest}"
        # The peer's figure by the ratio of the same turns: a busy machine slows all sides of a turn.
        ours_rate = rates["ours"]
        yield Row(name, ours_rate, ours_rate / ratio, "customers/s", 1.0, note, higher=True, goal_is_ratio=True)

    def _prepare(self) -> None:
        """Write what all sides read, once."""
        folder = Path(self.area)
        if (folder / problem.CUSTOMER_FACTORS).exists():
            return
        histories = problem.draw_histories(self.sizes.customers, self.sizes.items, self.sizes.mean)
        sparse.save_npz(folder / problem.HISTORIES, histories, compressed=False)
        nearest = find_neighbours(sparse.csr_array(histories), NEIGHBOURS, 0.5).matrix
        sparse.save_npz(folder / problem.LIKENESS, sparse.csr_matrix(nearest), compressed=False)
        items = (np.random.default_rng(2).standard_normal((self.sizes.items, DIMS)) / 8).astype(np.float32)
        np.save(folder / problem.ITEM_FACTORS, items)
        solved = half_step(sparse.csr_array(histories), items, {**DEFAULTS, "dims": DIMS})
        np.save(folder / problem.CUSTOMER_FACTORS, solved)


def _overlap(rounds: Sequence[dict[str, dict[str, list[list[int]]]]], peer: str) -> float:
    """Return the part of the first customers' items that both sides list."""
    pairs = [
        len(set(a) & set(b)) / K
        for one in rounds
        for a, b in zip(one["ours"]["first"], one[peer]["first"], strict=True)
    ]
    return statistics.fmean(pairs)


if __name__ == "__main__":
    sys.exit(main(BENCH, Recommending, Sizes(), QUICK))

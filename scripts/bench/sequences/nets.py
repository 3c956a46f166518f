"""Two networks that read a sequence and say at each place what comes next, their output tied to their embedding."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

LAYERS, HEADS = 2, 2  # of SASRec


class Network(nn.Module):  # type: ignore[misc]
    """What both have: an embedding of the items, which is also the output's, and a bias."""

    def __init__(self, items: int, width: int, dropout: float) -> None:
        super().__init__()
        self.items = nn.Embedding(items, width)
        self.bias = nn.Parameter(torch.zeros(items))
        self.drop = nn.Dropout(dropout)
        nn.init.normal_(self.items.weight, std=0.02)

    def scores(self, state: Tensor) -> Tensor:
        """Return scores (b, items) of states (b, width)."""
        return torch.addmm(self.bias, state, self.items.weight.T)


class Gru(Network):
    """GRU4Rec's layer (Hidasi et al. 2016), over whole sequences as Hidasi & Karatzoglou 2018 train it."""

    def __init__(self, items: int, width: int, dropout: float, length: int) -> None:  # noqa: ARG002
        super().__init__(items, width, dropout)
        self.layer = nn.GRU(width, width, batch_first=True)

    def forward(self, taken: Tensor, places: Tensor) -> Tensor:  # noqa: ARG002
        """Return states (b, n, width) after each of the items `taken` (b, n)."""
        return self.drop(self.layer(self.drop(self.items(taken) * self.items.embedding_dim**0.5))[0])


class SasRec(Network):
    """SASRec's causal transformer (Kang & McAuley 2018), normalized before each part; places count from the end."""

    def __init__(self, items: int, width: int, dropout: float, length: int) -> None:
        super().__init__(items, width, dropout)
        self.places = nn.Embedding(length, width)
        nn.init.normal_(self.places.weight, std=0.02)
        self.blocks = nn.ModuleList(Block(width, dropout) for _ in range(LAYERS))
        self.norm = nn.LayerNorm(width)

    def forward(self, taken: Tensor, places: Tensor) -> Tensor:
        """Return states (b, n, width) after each of the items `taken` (b, n), which stand at `places` (b, n)."""
        state = self.drop(self.items(taken) * self.items.embedding_dim**0.5 + self.places(places))
        for block in self.blocks:
            state = block(state)
        return self.norm(state)


class Block(nn.Module):  # type: ignore[misc]
    """Attention to what came before, and a layer at each place."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.asked, self.joined = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.back = nn.Linear(width, width), nn.Linear(width, width)
        self.drop, self.dropout = nn.Dropout(dropout), dropout

    def forward(self, state: Tensor) -> Tensor:
        """Return (b, n, width); padding stands on the right, so that no place sees it."""
        parts = self.asked(self.before(state)).unflatten(2, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        dropout = self.dropout if self.training else 0.0
        found = F.scaled_dot_product_attention(*parts, dropout_p=dropout, is_causal=True)
        state = state + self.drop(self.joined(found.transpose(1, 2).flatten(2)))
        return state + self.drop(self.back(self.drop(F.relu(self.wide(self.between(state))))))


KINDS = {"gru": Gru, "sasrec": SasRec}

"""A network as one epoch of a fine-tuning trains it."""

from __future__ import annotations

from dataclasses import replace

from nnlib.model.network import Network


def freeze(network: Network, epoch: int) -> Network:
    """Return the network, with the same arrays, in which the layers are locked that do not learn in an epoch."""
    spec = network.spec
    frozen = frozenset(spec.places[name] for name in spec.tuning.frozen(epoch))
    if not frozen:
        return network
    locked = frozenset(edge.number for edge in spec.edges if edge.target in frozen)
    return replace(network, locked=network.locked | locked, fixed=network.fixed | frozen & network.norms.keys())

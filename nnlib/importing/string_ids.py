"""Numbers for texts, found for whole columns of bytes at once: what a dict of strings does, without the strings.

A text is cut into words of eight bytes. Each word is a node below the node of the word before it, so a text is known
by the number of its last node; nodes are found in a hash table with linear probing, all rows of a column together.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nnlib.data.rows import Ints
from nnlib.util.arrays import Longs

Words = NDArray[np.uint64]

WORD = 8  # bytes
KEPT = np.array([(1 << WORD * n) - 1 for n in range(WORD)] + [2**64 - 1], dtype=np.uint64)  # bits of a word's n bytes
SPREAD, OTHER = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)  # odd: no bit is lost
HALF = np.uint64(32)
ROOM = 4  # places in the table for each node: most are found at once
NEVER = np.iinfo(np.int32).min  # no node stands before node 0: the number 0 means an empty place in the table


class StringIds:
    """Texts without zero bytes and their numbers, which are from 1 and have gaps."""

    def __init__(self) -> None:
        self.count = 1
        self._word: Words = np.zeros(1024, dtype=np.uint64)
        self._before: Ints = np.full(1024, NEVER, dtype=np.int32)
        self._make_table(1024 * ROOM)

    def numbers(self, words: Words, starts: Longs, lengths: Longs, group: Ints | None = None) -> Ints:
        """Return the number of each text; `words[i]` are the eight bytes from byte i on.

        Texts of different groups (numbers from 0) have different numbers.
        """
        before = np.full(len(starts), -1, dtype=np.int32) if group is None else -1 - group
        found = self._nodes(words[starts] & KEPT[np.minimum(lengths, WORD)], before)
        done = WORD
        longer = np.flatnonzero(lengths > done)
        while len(longer):
            word = words[starts[longer] + done] & KEPT[np.minimum(lengths[longer] - done, WORD)]
            found[longer] = self._nodes(word, found[longer])
            done += WORD
            longer = longer[lengths[longer] > done]
        return found

    def texts(self, numbers: Ints) -> tuple[list[str], Ints]:
        """Return the texts of `numbers` and their groups."""
        texts, groups = np.empty(len(numbers), dtype=object), np.empty(len(numbers), dtype=np.int32)
        places, nodes = np.arange(len(numbers)), numbers
        chain: list[Words] = []  # words of the texts that are not done, the last word first
        while len(places):
            chain.append(self._word[nodes])
            before = self._before[nodes]
            done = before < 0
            letters = np.column_stack([word[done] for word in reversed(chain)]).view(f"S{WORD * len(chain)}")
            texts[places[done]] = [text.decode() for text in letters[:, 0].tolist()]
            groups[places[done]] = -1 - before[done]
            chain = [word[~done] for word in chain]
            places, nodes = places[~done], before[~done]
        return texts.tolist(), groups

    def _make_table(self, size: int) -> None:
        self._table: Ints = np.zeros(size, dtype=np.int32)
        self._shift = np.uint64(64 - (size.bit_length() - 1))

    def _places(self, word: Words, before: Ints) -> Longs:
        mixed = word ^ (before.astype(np.int64).view(np.uint64) * OTHER)
        mixed ^= mixed >> HALF
        mixed *= SPREAD
        return (mixed >> self._shift).view(np.int64)

    def _nodes(self, word: Words, before: Ints) -> Ints:
        """Return the node of each word below the node before it; new ones are made."""
        place = self._places(word, before)
        found: Ints = self._table[place]
        missed = np.flatnonzero((self._word[found] != word) | (self._before[found] != before))
        if not len(missed):
            return found
        found[missed] = self._probe(word[missed], before[missed], place[missed])
        new = missed[found[missed] == 0]
        if len(new):
            order = np.lexsort((before[new], word[new]))
            new = new[order]
            first = np.ones(len(new), dtype=np.bool_)
            first[1:] = (word[new][1:] != word[new][:-1]) | (before[new][1:] != before[new][:-1])
            made = self._make(word[new[first]], before[new[first]])
            found[new] = made[np.cumsum(first) - 1]
        return found

    def _probe(self, word: Words, before: Ints, place: Longs) -> Ints:
        """Return the nodes of words that are not at their first place, 0 for those that are nowhere."""
        found = np.zeros(len(word), dtype=np.int32)
        left = np.flatnonzero(self._table[place])
        while len(left):
            place[left] = (place[left] + 1) & (len(self._table) - 1)
            node = self._table[place[left]]
            same = (self._word[node] == word[left]) & (self._before[node] == before[left])
            found[left[same]] = node[same]
            left = left[~same & (node != 0)]
        return found

    def _make(self, word: Words, before: Ints) -> Ints:
        """Make nodes for words that have none, and return them."""
        nodes = np.arange(self.count, self.count + len(word), dtype=np.int32)
        self.count += len(word)
        if self.count > len(self._word):
            size = max(self.count, 2 * len(self._word))
            self._word, self._before = _longer(self._word, size), _longer(self._before, size)
        self._word[nodes], self._before[nodes] = word, before
        if self.count * ROOM > len(self._table):
            self._make_table(1 << (2 * self.count * ROOM - 1).bit_length())
            nodes_to_place = np.arange(1, self.count, dtype=np.int32)
            self._put(nodes_to_place)
        else:
            self._put(nodes)
        return nodes

    def _put(self, nodes: Ints) -> None:
        """Enter nodes into the table. Where several want one empty place, the one that was written last has it."""
        place = self._places(self._word[nodes], self._before[nodes])
        while len(nodes):
            empty = self._table[place] == 0
            self._table[place[empty]] = nodes[empty]
            left = self._table[place] != nodes
            nodes, place = nodes[left], (place[left] + 1) & (len(self._table) - 1)


def _longer(values: NDArray[Any], size: int) -> NDArray[Any]:
    longer = np.empty(size, dtype=values.dtype)
    longer[: len(values)] = values
    return longer

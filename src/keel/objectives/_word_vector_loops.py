"""The inner loops of word2vec (Mikolov et al. 2013), compiled: each word's window, and each pair's negative samples.

In: the ids of rows end to end, where rows begin, the order in which they are processed, a seed for each, the input and
output embeddings, each word's probability of being kept, a list to draw negatives from, the window, the number of
negatives, and the learning rate. Out: the embeddings updated in place, pair by pair, and for each row the loss and the
number of pairs.

Notable choices
- numba (extra `fast`): the work is a hundred multiplications at two random places in memory, six times per pair. Matrix
  products would need pairs that share words; autograd would touch the full embedding matrices.
- Rows are distributed over threads without locks (Hogwild, Recht et al. 2011): with more than one thread, two runs
  differ in the last digits. All randomness derives from the row's seed.
- Each thread processes an equal part of `turns`, a permutation of the rows. Rows come longest first: in that order, one
  of two threads would have most of the work.
- All negatives of a pair are drawn, then all are scored, then all are updated, so that memory accesses overlap.
  Updating each before the next is scored, as published, takes 1.5 times as long.
- There are four loops, although they differ only in what happens at a word (skip-gram or CBOW, words with one row or
  several): a single loop that numba compiles with a function for each was 8 to 18 % slower for words with one row
  (docs/notebook.md).
- The sigmoid is a table of 1,024 values between -8 and 8; a pair beyond 8 is not updated.

Shapes: N words in R rows, V entries, W width.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import config, njit, prange

config.THREADING_LAYER = "workqueue"  # type: ignore[attr-defined]  # not in its stubs; others change how many threads torch has

EDGE, CELLS = 8.0, 1024
PER_CELL = CELLS / (2 * EDGE)
_middles = (np.arange(CELLS) + 0.5) / PER_CELL - EDGE
SIGMOID = (1 / (1 + np.exp(-_middles))).astype(np.float32)
SURPRISE = np.log1p(np.exp(-_middles)).astype(np.float32)  # -log sigmoid


@njit(inline="always")
def _next(state: Any) -> Any:
    """A linear congruential generator modulo 2^64; only its high bits are used."""
    return state * np.uint64(6364136223846793005) + np.uint64(1442695040888963407)


@njit(inline="always")
def _below(state: Any, limit: Any) -> Any:
    return np.int64(((state >> np.uint64(32)) * np.uint64(limit)) >> np.uint64(32))


@njit(fastmath=True)
def _thin(ids: Any, keep: Any, state: Any, kept: Any) -> Any:
    """Subsamples the words of a row: frequent ones are dropped at random."""
    count = 0
    for id in ids:
        state = _next(state)
        if np.float32(state >> np.uint64(40)) < keep[id] * np.float32(1 << 24):
            kept[count] = id
            count += 1
    return count, state


@njit(fastmath=True, inline="always")
def _add(row: Any, total: Any) -> None:
    for i in range(len(total)):
        total[i] += row[i]


@njit(fastmath=True, inline="always")
def _against_noise(
    vector: Any,
    word: Any,
    outputs: Any,
    noise: Any,
    rate: Any,
    state: Any,
    back: Any,
    targets: Any,
    moves: Any,
) -> Any:
    """One positive and some negative pairs: updates the outputs, and adds the vector's update to `back`.
    `targets` and `moves` are buffers with one entry per pair."""
    targets[0] = word
    for number in range(1, len(targets)):
        state = _next(state)
        targets[number] = noise[_below(state, len(noise))]
    loss = np.float32(0)
    for number in range(len(targets)):
        row = outputs[targets[number]]
        product = np.float32(0)
        for i in range(len(vector)):
            product += vector[i] * row[i]
        sign = np.float32(-1) if number else np.float32(1)
        if product * sign >= EDGE or (number and targets[number] == word):
            moves[number] = 0
            continue
        if product * sign <= -EDGE:
            chance, surprise = np.float32(0), -product * sign
        else:
            place = int((product * sign + np.float32(EDGE)) * np.float32(PER_CELL))
            cell = max(0, min(CELLS - 1, place))  # the sum may be rounded up to the edge
            chance, surprise = SIGMOID[cell], SURPRISE[cell]
        loss += surprise
        moves[number] = sign * (np.float32(1) - chance) * rate
    for number in range(len(targets)):
        row, move = outputs[targets[number]], moves[number]
        if move == 0:  # writing the same value again could undo another thread's update
            continue
        for i in range(len(vector)):
            back[i] += move * row[i]
            row[i] += move * vector[i]
    return loss, state


@njit(parallel=True, fastmath=True, cache=True)
def skip_gram(
    ids: Any,
    starts: Any,
    turns: Any,
    seeds: Any,
    inputs: Any,
    outputs: Any,
    keep: Any,
    noise: Any,
    window: Any,
    negatives: Any,
    rate: Any,
) -> Any:
    """Predicts the centre word from each context word."""
    losses, counts = np.zeros(len(seeds)), np.zeros(len(seeds), np.int64)
    for turn in prange(len(turns)):
        r = turns[turn]
        mine = ids[starts[r] : starts[r + 1]]
        kept, back = np.empty(len(mine), np.int64), np.empty(inputs.shape[1], np.float32)
        targets, moves = np.empty(negatives + 1, np.int64), np.empty(negatives + 1, np.float32)
        count, state = _thin(mine, keep, seeds[r], kept)
        for i in range(count):
            state = _next(state)
            reach = window - _below(state, window)
            for j in range(max(0, i - reach), min(count, i + reach + 1)):
                if j == i:
                    continue
                vector = inputs[kept[j]]
                back[:] = 0
                loss, state = _against_noise(vector, kept[i], outputs, noise, rate, state, back, targets, moves)
                _add(back, vector)
                losses[r] += loss
                counts[r] += 1
    return losses, counts


@njit(fastmath=True)
def _add_rows(inputs: Any, rows: Any, total: Any) -> Any:
    """Adds rows to a sum and returns their number; the list ends with -1."""
    count = 0
    for row in rows:
        if row < 0:
            break
        _add(inputs[row], total)
        count += 1
    return count


@njit(parallel=True, fastmath=True, cache=True)
def skip_gram_of_parts(
    ids: Any,
    starts: Any,
    turns: Any,
    seeds: Any,
    inputs: Any,
    outputs: Any,
    keep: Any,
    noise: Any,
    window: Any,
    negatives: Any,
    rate: Any,
    parts: Any,
) -> Any:
    """The same, where a word's vector is the mean of several rows; each row gets the full update."""
    losses, counts = np.zeros(len(seeds)), np.zeros(len(seeds), np.int64)
    for turn in prange(len(turns)):
        r = turns[turn]
        mine, width = ids[starts[r] : starts[r + 1]], inputs.shape[1]
        kept, back, vector = np.empty(len(mine), np.int64), np.empty(width, np.float32), np.empty(width, np.float32)
        targets, moves = np.empty(negatives + 1, np.int64), np.empty(negatives + 1, np.float32)
        count, state = _thin(mine, keep, seeds[r], kept)
        for i in range(count):
            state = _next(state)
            reach = window - _below(state, window)
            for j in range(max(0, i - reach), min(count, i + reach + 1)):
                if j == i:
                    continue
                rows = parts[kept[j]]
                vector[:] = 0
                size = _add_rows(inputs, rows, vector)
                vector /= np.float32(max(1, size))
                back[:] = 0
                loss, state = _against_noise(vector, kept[i], outputs, noise, rate, state, back, targets, moves)
                for row in rows[:size]:
                    _add(back, inputs[row])
                losses[r] += loss
                counts[r] += 1
    return losses, counts


@njit(parallel=True, fastmath=True, cache=True)
def cbow_of_parts(
    ids: Any,
    starts: Any,
    turns: Any,
    seeds: Any,
    inputs: Any,
    outputs: Any,
    keep: Any,
    noise: Any,
    window: Any,
    negatives: Any,
    rate: Any,
    parts: Any,
) -> Any:
    """CBOW where a word's vector is the mean of several rows: uses the mean of all rows of the context words."""
    losses, counts = np.zeros(len(seeds)), np.zeros(len(seeds), np.int64)
    for turn in prange(len(turns)):
        r = turns[turn]
        mine, width = ids[starts[r] : starts[r + 1]], inputs.shape[1]
        kept, back, mean = np.empty(len(mine), np.int64), np.empty(width, np.float32), np.empty(width, np.float32)
        targets, moves = np.empty(negatives + 1, np.int64), np.empty(negatives + 1, np.float32)
        count, state = _thin(mine, keep, seeds[r], kept)
        for i in range(count):
            state = _next(state)
            reach = window - _below(state, window)
            first, end = max(0, i - reach), min(count, i + reach + 1)
            if end - first < 2:
                continue
            mean[:] = 0
            back[:] = 0
            total = 0
            for j in range(first, end):
                if j != i:
                    total += _add_rows(inputs, parts[kept[j]], mean)
            mean /= np.float32(max(1, total))
            loss, state = _against_noise(mean, kept[i], outputs, noise, rate, state, back, targets, moves)
            for j in range(first, end):
                if j != i:
                    for row in parts[kept[j]]:
                        if row < 0:
                            break
                        _add(back, inputs[row])
            losses[r] += loss
            counts[r] += 1
    return losses, counts


@njit(parallel=True, fastmath=True, cache=True)
def cbow(
    ids: Any,
    starts: Any,
    turns: Any,
    seeds: Any,
    inputs: Any,
    outputs: Any,
    keep: Any,
    noise: Any,
    window: Any,
    negatives: Any,
    rate: Any,
) -> Any:
    """Predicts the centre word from the mean of the context words; each of them gets the full update."""
    losses, counts = np.zeros(len(seeds)), np.zeros(len(seeds), np.int64)
    for turn in prange(len(turns)):
        r = turns[turn]
        mine = ids[starts[r] : starts[r + 1]]
        width = inputs.shape[1]
        kept, back, mean = np.empty(len(mine), np.int64), np.empty(width, np.float32), np.empty(width, np.float32)
        targets, moves = np.empty(negatives + 1, np.int64), np.empty(negatives + 1, np.float32)
        count, state = _thin(mine, keep, seeds[r], kept)
        for i in range(count):
            state = _next(state)
            reach = window - _below(state, window)
            first, end = max(0, i - reach), min(count, i + reach + 1)
            if end - first < 2:
                continue
            mean[:] = 0
            back[:] = 0
            for j in range(first, end):
                if j != i:
                    _add(inputs[kept[j]], mean)
            mean /= np.float32(end - first - 1)
            loss, state = _against_noise(mean, kept[i], outputs, noise, rate, state, back, targets, moves)
            for j in range(first, end):
                if j != i:
                    _add(back, inputs[kept[j]])
            losses[r] += loss
            counts[r] += 1
    return losses, counts


LOOPS = {
    "skip_gram": skip_gram,
    "skip_gram_of_parts": skip_gram_of_parts,
    "cbow": cbow,
    "cbow_of_parts": cbow_of_parts,
}

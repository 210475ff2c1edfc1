"""Splits texts into sentences and tokenises them, on one core or several; results come in the order of the input.

In: chunks of texts. Out: for each chunk its ids, word starts and sentence ends (`Tokens`).

Notable choices
- Our own processes and pipes instead of concurrent.futures: when the parent is killed, the pipe closes and the worker
  exits; the workers of an executor would wait forever.
- Workers are spawned, never forked: the tokenizers library runs threads, and a fork would copy the parent's memory.
- A worker has a second chunk queued while it works on the first, so it never waits for the parent to read and parse.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import traceback
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Protocol, TypeVar

import numpy as np

from keel.batching import groups
from keel.corpus.store import id_dtype
from keel.errors import UserError
from keel.text.sentences import split
from keel.tokenizers import chinese
from keel.tokenizers.folder import read_tokenizer
from keel.tokenizers.library import LibraryTokenizer

BATCH_CHARACTERS = 1 << 16  # per call of the tokenizer, whose results take some hundred bytes per token
CHUNKS_PER_WORKER = 2


class HasTexts(Protocol):
    @property
    def texts(self) -> Sequence[str]: ...


C = TypeVar("C", bound=HasTexts)


@dataclass(frozen=True)
class Tokens:
    """The X texts of a chunk as N tokens in S sentences."""

    ids: np.ndarray  # (N,) uint16, or uint32 for large vocabularies
    words: np.ndarray  # (N,) bool
    sentences: np.ndarray  # (S,) int64: where each sentence ends in `ids`
    texts: np.ndarray  # (X,) int64: where each text ends in `sentences`


def encode(texts: Sequence[str], tokenizer: LibraryTokenizer, language: str) -> Tokens:
    """Each sentence is tokenised alone, so its ids do not depend on the other texts of the chunk."""
    sentences: list[str] = []
    counts = []
    for text in texts:
        in_text = split(text)
        counts.append(len(in_text))
        sentences += in_text
    ids: list[np.ndarray] = []
    starts: list[np.ndarray] = []
    for batch in groups(sentences, len, BATCH_CHARACTERS):
        rows = tokenizer.encode(batch)
        if language == "zh" and not tokenizer.whole_words:
            starts += chinese.word_starts(batch, rows, tokenizer)
        else:
            starts += tokenizer.word_starts(rows)
        ids += rows
    lengths = np.fromiter(map(len, ids), np.int64, len(ids))
    filled = lengths > 0  # a sentence of control characters has no tokens
    text_of_sentence = np.repeat(np.arange(len(texts)), counts)
    dtype = id_dtype(tokenizer.size)
    return Tokens(
        np.concatenate([np.zeros(0, dtype), *ids], dtype=dtype, casting="unsafe"),
        np.concatenate([np.zeros(0, bool), *starts]),
        np.cumsum(lengths[filled]),
        np.cumsum(np.bincount(text_of_sentence[filled], minlength=len(texts))),
    )


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Limits the tokenizers library to one thread: the processes already use all cores."""
    name = "TOKENIZERS_PARALLELISM"
    before = os.environ.get(name)
    os.environ[name] = "false"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def encode_here(chunks: Iterator[C], tokenizer: LibraryTokenizer, language: str) -> Generator[tuple[C, Tokens]]:
    """Encodes in this process."""
    for chunk in chunks:
        with one_thread():
            tokens = encode(chunk.texts, tokenizer, language)
        yield chunk, tokens


def encode_in_processes(chunks: Iterator[C], count: int, tokenizer: Path, language: str) -> Generator[tuple[C, Tokens]]:
    """Encodes in `count` processes, each of which opens the tokenizer folder itself."""
    context = multiprocessing.get_context("spawn")
    load: dict[Connection, int] = {}
    processes: dict[Connection, Any] = {}
    try:
        for _ in range(count):
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, args=(theirs, str(tokenizer), language), daemon=True)
            process.start()
            theirs.close()
            load[ours], processes[ours] = 0, process
        yield from _exchange(chunks, load)
    except (EOFError, ConnectionError):
        codes = [process.exitcode for process in processes.values() if process.exitcode is not None]
        raise UserError(
            f"a worker process died (exit code {codes[0] if codes else 'unknown'}; -9 often means too little memory);"
            " run the same command again to resume, with fewer --workers if necessary"
        ) from None
    finally:
        for connection, process in processes.items():
            connection.close()
            process.terminate()
            process.join()


def _exchange(chunks: Iterator[C], load: dict[Connection, int]) -> Iterator[tuple[C, Tokens]]:
    """Sends each chunk to the worker with the fewest chunks, and yields results in the order of the chunks."""
    waiting: deque[C] = deque()
    done: dict[int, Tokens] = {}
    sent = yielded = 0
    more = True
    while True:
        while more and len(waiting) < len(load) * (CHUNKS_PER_WORKER + 1):
            connection = min(load, key=lambda c: load[c])
            if load[connection] >= CHUNKS_PER_WORKER:
                break
            chunk = next(chunks, None)
            if chunk is None:
                more = False
                break
            connection.send((sent, list(chunk.texts)))
            load[connection] += 1
            waiting.append(chunk)
            sent += 1
        if not waiting:
            return
        if yielded not in done:
            for ready in wait(list(load)):
                assert isinstance(ready, Connection)
                number, answer = ready.recv()
                if isinstance(answer, UserError):
                    raise answer
                if isinstance(answer, str):
                    raise RuntimeError(f"a worker failed:\n{answer}")
                done[number] = answer
                load[ready] -= 1
        while yielded in done:
            yield waiting.popleft(), done.pop(yielded)
            yielded += 1


def _work(connection: Connection, tokenizer: str, language: str) -> None:
    """The worker process: encodes chunks until its pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the parent stops this one
    inbox: SimpleQueue[tuple[int, list[str]] | None] = SimpleQueue()
    # A separate thread reads: without it parent and worker would deadlock if both were writing large messages.
    threading.Thread(target=_receive, args=(connection, inbox), daemon=True).start()
    with one_thread(), contextlib.suppress(ConnectionError):
        try:
            opened = read_tokenizer(tokenizer)
            while (task := inbox.get()) is not None:
                number, texts = task
                connection.send((number, encode(texts, opened, language)))
        except UserError as error:
            connection.send((-1, error))
        except ConnectionError:
            raise
        except Exception:
            connection.send((-1, traceback.format_exc()))


def _receive(connection: Connection, inbox: SimpleQueue[tuple[int, list[str]] | None]) -> None:
    with contextlib.suppress(EOFError, OSError):
        while True:
            inbox.put(connection.recv())
    inbox.put(None)

"""Passages of a folder of text, found by SQLite's full-text index in memory and ranked by BM25."""

from __future__ import annotations

import json
import re
import sqlite3
import threading
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Protocol

from orgthink.util.errors import UserError
from orgthink.util.threads import PROGRAMS, off_loop

_KINDS = (".txt", ".md", ".jsonl")
"""Files that are read."""

_MOST_WORDS = 32
"""Words of a query that count. Thousands would take seconds."""
_MOST_CHARACTERS = 4_000
"""Characters of a query that are read for them."""

_SCRIPT = (
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
"""Characters of Chinese and Japanese, which put no spaces between their words: each is indexed by itself."""
_WORD = re.compile(rf"[{_SCRIPT}]+|[^\W{_SCRIPT}]+")
_CHARACTER = re.compile(rf"[{_SCRIPT}]")
_PARAGRAPHS = re.compile(r"\n\s*\n")
_HEADING = re.compile(r"#+\s+(.*)")


@dataclass(frozen=True, slots=True)
class Passage:
    """A piece of text."""

    title: str
    """Its topic; empty without a title."""
    text: str
    """Its content."""
    score: float
    """How well it fits the query: more is better, on the retriever's own scale."""

    @classmethod
    def of(cls, contents: str, score: float = 0.0) -> Passage:
        """A passage as Search-R1 writes it: a title in quotes on a line of its own, then the text."""
        title, newline, text = contents.strip().partition("\n")
        return cls(title.strip().strip('"'), text, score) if newline else cls("", title, score)

    @property
    def line(self) -> str:
        """On one line, with its title."""
        return " ".join((f"{self.title}: {self.text}" if self.title else self.text).split())


class Retriever(Protocol):
    """Finds passages."""

    async def retrieve(self, queries: Sequence[str], topk: int) -> list[list[Passage]]:
        """At most `topk` passages for each query, most relevant first. ToolError if a server fails."""
        ...


def read_passages(folder: Path) -> list[Passage]:
    """All passages below a folder, by file name; UserError without any.

    Of text and Markdown every paragraph is one, titled by the heading above it; of .jsonl every line, whose
    `contents` are as Search-R1 has them.
    """
    if not folder.is_dir():
        raise UserError(f"no folder {str(folder)!r} to search: name one with .txt, .md or .jsonl files")
    files = sorted(path for path in folder.rglob("*") if path.suffix in _KINDS and path.is_file())
    for file in files:  # passages go to the model's server
        if not file.resolve().is_relative_to(folder.resolve()):
            raise UserError(f"{file} is a link out of its folder: put a copy of the text there, or take it out")
    found = [passage for file in files for passage in _read(file)]
    if not found:
        raise UserError(f"nothing to search in {str(folder)!r}: put .txt, .md or .jsonl files there")
    return found


def _read(file: Path) -> Iterator[Passage]:
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{file} is not UTF-8 text: convert it, or take it out of the folder") from error
    if file.suffix == ".jsonl":
        yield from _read_jsonl(file, text)
        return
    title = ""
    for paragraph in _PARAGRAPHS.split(text):
        first, _, rest = paragraph.strip().partition("\n")
        heading = _HEADING.fullmatch(first) if file.suffix == ".md" else None
        if heading is not None:
            title, paragraph = heading[1].strip(), rest
        if paragraph.strip():
            yield Passage(title, paragraph.strip(), 0.0)


def _read_jsonl(file: Path, text: str) -> Iterator[Passage]:
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            contents = str(json.loads(line)["contents"])
            contents.encode()  # half of a surrogate pair is no text
            yield Passage.of(contents)
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise UserError(f'{file}:{number} is not a passage: write {{"id": …, "contents": …}}') from error


class Corpus:
    """Passages that are found by their words."""

    def __init__(self, passages: Sequence[Passage]) -> None:
        self._passages = list(passages)
        self._lock = threading.Lock()
        self._index = sqlite3.connect(":memory:", check_same_thread=False)
        self._index.execute(
            "CREATE VIRTUAL TABLE passages USING"
            " fts5(title, text, content = '', tokenize = 'porter unicode61 remove_diacritics 2')"
        )
        self._index.executemany(
            "INSERT INTO passages (rowid, title, text) VALUES (?, ?, ?)",
            ((place, _apart(one.title), _apart(one.text)) for place, one in enumerate(self._passages)),
        )

    async def retrieve(self, queries: Sequence[str], topk: int) -> list[list[Passage]]:
        """Passages that share a word with the query, or two neighbours of Chinese or Japanese, the best by BM25 first;
        of equals, the first in the corpus."""
        return await off_loop(PROGRAMS, lambda: [self._best(query, topk) for query in queries])

    def _best(self, query: str, topk: int) -> list[Passage]:
        terms = _terms(query)
        if not terms:
            return []
        with self._lock:
            # bm25() is less for what fits better.
            rows = self._index.execute(
                "SELECT rowid, -bm25(passages) FROM passages WHERE passages MATCH ? ORDER BY rank, rowid LIMIT ?",
                (terms, topk),
            )
            return [replace(self._passages[place], score=score) for place, score in rows]


def _apart(text: str) -> str:
    """A text with spaces around each character of Chinese or Japanese."""
    return _CHARACTER.sub(r" \g<0> ", text)


def _terms(query: str) -> str:
    """The words of a query, each in quotes, where nothing has a meaning to FTS5; any of them may match. Of Chinese and
    Japanese each two neighbours are one: a whole question would match nothing, and a single character anything."""
    words: dict[str, None] = {}
    for word in _WORD.findall(unicodedata.normalize("NFC", query[:_MOST_CHARACTERS]).casefold()):
        apart = _apart(word).split()
        words |= dict.fromkeys(" ".join(apart[i : i + 2]) for i in range(max(1, len(apart) - 1)))
    return " OR ".join(f'"{word}"' for word in list(words)[:_MOST_WORDS])


@cache
def corpus(folder: Path) -> Corpus:
    """The index of a folder, built once per process; UserError if there is nothing in it."""
    return Corpus(read_passages(folder))

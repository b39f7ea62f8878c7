"""Invented outputs of MarsRL's agents on problems that name their answer, and an engine that writes them."""

from __future__ import annotations

import asyncio
import json
import re
import zlib
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from orgthink.engines.engine import Chunk, Context, Engine, FinishReason
from orgthink.engines.local.sampling import GAMMA
from orgthink.record.episode import Episode, Message, Origin, Sampling, Span
from orgthink.training.marsrl.pipeline import Pipeline
from orgthink.training.rl import Clock
from orgthink.training.rows import PolicyRow

Write = Callable[[str, Random], str]
"""An input, and luck → the whole output."""


@dataclass(frozen=True)
class Habits:
    """How often agents do something; otherwise they do the opposite."""

    solves: float = 0.5
    """A solver or a corrector is right."""
    accuses: float = 0.5
    """A verifier finds an error."""
    rambles: float = 0.2
    """An output has no answer or verdict."""
    spellings: int = 3
    """Different texts around the same answer or verdict: with few of them, outputs are often the same."""

    def __call__(self, text: str, luck: Random) -> str:
        """The output of the role that the input names. The answer to problem `7` is 7."""
        role, answer, *_ = text.split()
        said = " hm" * luck.randrange(4) + " </think>" + f" step {luck.randrange(self.spellings)}"
        if luck.random() < self.rambles:
            return luck.choice([said, " hm", " hm </think>", " hm </think> none"])
        if role == "verifier":
            return said + f" correctness : {'wrong' if luck.random() < self.accuses else 'correct'}"
        given = int(answer) if luck.random() < self.solves else int(answer) + luck.randint(1, 3)
        return said + f" <ANSWER> {given} </ANSWER>"


def problems_file(folder: Path, *answers: int) -> str:
    """A task whose problems name their answer."""
    file = folder / "problems.jsonl"
    file.write_text("".join(json.dumps({"problem": str(n), "answer": str(n)}) + "\n" for n in answers))
    return f"math:{file}"


class WordEngine(Engine):
    """Writes word by word, and ends with a token without text.

    An output depends only on the input and the seed, however often it is continued, if the seed is advanced.
    """

    native_calls = False

    def __init__(self, write: Write, *, context: int = 1 << 20) -> None:
        self.model, self.version = "words", "0"
        self.requests: list[tuple[str, int, int]] = []
        """Input, number of tokens so far, and most tokens to sample."""
        self._write, self._context = write, context

    def prompt(self, messages: tuple[Message, ...]) -> Span:
        text = "\n\n".join(message.content for message in messages)
        ids = self._encode(text)
        return Span(Origin.PROMPT, text, len(ids), ids)

    def injection(self, text: str, around: tuple[str, str] = ("", "")) -> tuple[str, tuple[int, ...]]:
        return text.join(around), self._encode(text.join(around))

    def turn(self, context: Context, text: str) -> tuple[str, tuple[int, ...]]:
        return self.injection(text)

    async def stream(self, context: Context, sampling: Sampling) -> AsyncGenerator[Chunk]:
        assert sampling.seed is not None
        asked, there, seen = context.spans[0].text, sum(span.tokens for span in context.spans[1:]), context.token_ids
        self.requests.append((asked, there, sampling.max_tokens))
        room = min(sampling.max_tokens, self._context - len(seen))
        if room <= 0:
            yield Chunk((), (), (), FinishReason.LENGTH)
            return
        output = self._write(asked, Random((sampling.seed - there * GAMMA) % 2**64))
        words = [*re.findall(r"\s*\S+", output), ""]
        for n, word in enumerate(words[there : there + room], there + 1):
            await asyncio.sleep(0)
            finish = None if word else FinishReason.EOS
            if finish is None and n == there + room:
                finish = FinishReason.LENGTH
            yield Chunk((word,), self._encode(word) or (0,), (-n / 100,), finish, self.version)

    async def aclose(self) -> None:
        pass

    def _encode(self, text: str) -> tuple[int, ...]:
        return tuple(zlib.crc32(word.encode()) for word in re.findall(r"\s*\S+", text))


class Step(NamedTuple):
    """The result of a step of the pipeline."""

    rows: list[PolicyRow]
    metrics: dict[str, Any]
    episodes: list[Episode]


def stepped(source: Pipeline, engine: WordEngine, steps: int, first: int = 0) -> list[Step]:
    """Run steps without training. Each has a newer version of the weights."""

    async def go() -> list[Step]:
        found = []
        for step in range(first, first + steps):
            engine.version, episodes = str(step), list[Episode]()
            batch = await source.collect(engine, step, Clock(), episodes.append)
            found.append(Step(batch.rows, batch.metrics, [episode.of_step(step + 1) for episode in episodes]))
        return found

    return asyncio.run(go())

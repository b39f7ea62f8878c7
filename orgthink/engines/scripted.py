"""A scripted engine: deterministic and strict, for tests, documentation and demos.

A script is a list of turns. Each request takes the first unused turn that fits it; a request that none
fits raises `UnexpectedRequest`, a script that is not used up raises `UnconsumedTurns`. Time passes on the
event loop, so under `run_virtual` it costs nothing.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass

from orgthink.engines.engine import Chunk, Context, EngineError, Finish
from orgthink.episode import Message, Origin, Sampling, Span

_PIECE = re.compile(r"\s*(?:</?[A-Z]+-?\d*>|[^\s<]+|<)|\s+")


class UnexpectedRequest(AssertionError):
    """No turn of the script fits a request."""


class UnconsumedTurns(AssertionError):
    """The script has turns that nobody asked for."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What the model says to one request."""

    says: str
    """Text; a tag or a word, with the space before it, is a token."""
    when: str = ""
    """Fits requests whose context contains this text."""
    seconds: float = 1.0
    """Per token; the first comes after as many."""
    fails: str | None = None
    """After the text, an EngineError with this message."""
    hangs: bool = False
    """After the text, nothing more, for ever."""
    slow_cleanup: float = 0.0
    """Seconds that aborting takes: a badly behaved engine."""


def pieces(text: str) -> list[str]:
    """The scripted engine's tokens of a text."""
    return _PIECE.findall(text)


class ScriptedEngine:
    """Says what its script says. `sampled` logs the time and text of every token."""

    native_calls = False

    def __init__(self, turns: Sequence[Turn], *, model: str = "scripted") -> None:
        self.model = model
        self.sampled: list[tuple[float, str]] = []
        self._turns = list(turns)
        self._ids: dict[str, int] = {}

    def prompt(self, messages: tuple[Message, ...]) -> Span:
        text = "\n\n".join(message.content for message in messages)
        ids = self._encode(text)
        return Span(Origin.PROMPT, text, len(ids), ids)

    def injection(self, text: str) -> tuple[str, tuple[int, ...]]:
        return text, self._encode(text)

    def turn(self, context: Context, text: str) -> tuple[str, tuple[int, ...]]:
        return self.injection(text)

    async def stream(self, context: Context, sampling: Sampling) -> AsyncGenerator[Chunk]:
        turn = self._next(context.text)
        said = ""
        tokens = pieces(turn.says)
        try:
            for n, piece in enumerate(tokens, 1):
                await asyncio.sleep(turn.seconds)
                self.sampled.append((asyncio.get_running_loop().time(), piece))
                said += piece
                finish = self._finish(said, n, sampling, last=n == len(tokens) and not (turn.fails or turn.hangs))
                yield Chunk((piece,), self._encode(piece), (0.0,), finish, "script")
                if finish is not None:
                    return
            if turn.hangs:
                await asyncio.Event().wait()
            if turn.fails is not None:
                raise EngineError(turn.fails)
            yield Chunk((), (), (), Finish.EOS, "script")
        finally:
            if turn.slow_cleanup:
                await asyncio.sleep(turn.slow_cleanup)

    async def aclose(self) -> None:
        """Raises UnconsumedTurns if the script was not used up."""
        if self._turns:
            raise UnconsumedTurns(f"never asked for: {[turn.says for turn in self._turns]}")

    def _next(self, text: str) -> Turn:
        for i, turn in enumerate(self._turns):
            if turn.when in text:
                return self._turns.pop(i)
        raise UnexpectedRequest(f"no turn fits: …{text[-200:]!r}")

    def _finish(self, said: str, n: int, sampling: Sampling, *, last: bool) -> Finish | None:
        if any(stop in said for stop in sampling.stop):
            return Finish.STOP
        if last:
            return Finish.EOS
        return Finish.LENGTH if n >= sampling.max_tokens else None

    def _encode(self, text: str) -> tuple[int, ...]:
        return tuple(self._ids.setdefault(piece, len(self._ids)) for piece in pieces(text))

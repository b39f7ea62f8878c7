"""A scripted engine: deterministic and strict, for tests, documentation and demos.

A script is a list of turns. Each request takes the first unused turn that fits. A request without a fitting turn raises
`UnexpectedRequest`; unused turns at the end raise `UnconsumedTurns`. Time passes on the event loop, so it costs nothing
under `run_virtual`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass

from orgthink.engines.engine import Chunk, Context, Engine, EngineError, FinishReason, Tools
from orgthink.record.episode import Message, Origin, Sampling, Span

_PIECE = re.compile(r"\s*(?:</?[A-Z]+-?\d*>|[^\s<]+|<)|\s+")


class UnexpectedRequest(AssertionError):
    """No turn of the script fits a request."""


class UnconsumedTurns(AssertionError):
    """Turns of the script were not used."""


@dataclass(frozen=True, slots=True)
class Turn:
    """The model's output for one request."""

    says: str
    """Text; each tag or word, with the space before it, is a token."""
    when: str = ""
    """The turn fits requests whose context contains this text."""
    seconds: float = 1.0
    """Seconds for each token, the first one included."""
    fails: str | None = None
    """Message of an EngineError after the text."""
    hangs: bool = False
    """Whether the stream hangs after the text."""
    slow_cleanup: float = 0.0
    """Seconds that an abort takes."""


def pieces(text: str) -> list[str]:
    """The scripted engine's tokens of a text."""
    return _PIECE.findall(text)


class ScriptedEngine(Engine):
    """Samples the turns of its script. `sampled` logs the time and text of every token."""

    def __init__(self, turns: Sequence[Turn], *, model: str = "scripted") -> None:
        self.model = model
        self.sampled: list[tuple[float, str]] = []
        self._turns = list(turns)
        self._ids: dict[str, int] = {}

    def prompt(self, messages: tuple[Message, ...], tools: Tools = ()) -> Span:
        text = "\n\n".join(message.content for message in messages)
        ids = self._encode(text)
        return Span(Origin.PROMPT, text, len(ids), ids)

    def injection(self, text: str, around: tuple[str, str] = ("", "")) -> tuple[str, tuple[int, ...]]:
        whole = text.join(around)
        return whole, self._encode(whole)

    def turn(self, context: Context, text: str) -> tuple[str, tuple[int, ...]]:
        return self.injection(text)

    async def stream(self, context: Context, sampling: Sampling) -> AsyncGenerator[Chunk]:
        turn = self._next(context.text)
        text = ""
        tokens = pieces(turn.says)
        try:
            for n, piece in enumerate(tokens, 1):
                await asyncio.sleep(turn.seconds)
                self.sampled.append((asyncio.get_running_loop().time(), piece))
                text += piece
                finish = self._finish(text, n, sampling, last=n == len(tokens) and not (turn.fails or turn.hangs))
                yield Chunk((piece,), self._encode(piece), (0.0,), finish, "script")
                if finish is not None:
                    return
            if turn.hangs:
                await asyncio.Event().wait()
            if turn.fails is not None:
                raise EngineError(turn.fails)
            yield Chunk((), (), (), FinishReason.EOS, "script")
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

    def _finish(self, text: str, n: int, sampling: Sampling, *, last: bool) -> FinishReason | None:
        if any(stop in text for stop in sampling.stop):
            return FinishReason.STOP
        if last:
            return FinishReason.EOS
        return FinishReason.LENGTH if n >= sampling.max_tokens else None

    def _encode(self, text: str) -> tuple[int, ...]:
        return tuple(self._ids.setdefault(piece, len(self._ids)) for piece in pieces(text))

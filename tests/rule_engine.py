"""An engine for tests of evaluations: what it says is a rule of what it sees, so any order of requests will do."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable

from orgthink.engines.engine import Chunk, Context, Engine, EngineError, FinishReason
from orgthink.record.episode import Sampling

Rule = Callable[[str], str]
"""Text of a context → what is said next; raises EngineError to fail."""


class RuleEngine(Engine):
    """Says `rule(context)`, word by word."""

    def __init__(self, rule: Rule, *, seconds: float = 0.0, model: str = "rule") -> None:
        self.model, self.live, self.most_live, self.requests, self.closed = model, 0, 0, 0, False
        self._rule, self._seconds = rule, seconds

    async def stream(self, context: Context, sampling: Sampling) -> AsyncGenerator[Chunk]:
        self.requests += 1
        self.live += 1
        self.most_live = max(self.live, self.most_live)
        try:
            words = re.findall(r"\s*\S+", self._rule(context.text))
            for n, word in enumerate(words, 1):
                await asyncio.sleep(self._seconds)
                length = FinishReason.LENGTH if n >= sampling.max_tokens else None
                yield Chunk((word,), finish=FinishReason.EOS if n == len(words) else length)
                if length:
                    return
        finally:
            self.live -= 1

    async def aclose(self) -> None:
        self.closed = True


def countdown(text: str) -> str:
    """Solves every countdown problem the way one does who only adds: one of four solutions is often right.

    Speaks AsyncThink when it is asked to organize.
    """
    role = text.split(maxsplit=1)[0]
    numbers = re.search(r"(?:Numbers:|countdown)((?: \d+,?)+)", text)
    assert numbers is not None, text
    first = " + ".join(re.findall(r"\d+", numbers[1])[:3])
    if role == "worker":
        return f" trying <RETURN> {first} </RETURN>"
    if role == "organizer" and "</JOIN-1>" not in text:
        return " <FORK-1> add </FORK-1> thinking on my own <JOIN-1>"
    return f" so <ANSWER> {first} </ANSWER>"


def failing(text: str) -> str:
    raise EngineError("the server is gone")

"""A chat model that says what a plan holds, a token a second: the same plan in tags and in calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import Any

from orgthink.engines.engine import Chunk, Context, Engine, FinishReason, Tools
from orgthink.grammar.toolcall import ToolCall, render_call
from orgthink.record.episode import Message, Origin, Sampling, Span


def call(name: str, **arguments: Any) -> str:
    """A call, as one token."""
    return render_call(ToolCall(name, arguments))


class PlannedModel(Engine):
    """Says the plan of an agent from where it is. A reply ends with its plan, or with a token of calls.

    Plans are lists of tokens, by a text of the agent's prompt.
    """

    def __init__(
        self, plans: Mapping[str, Sequence[str]], *, native: bool = False, seconds: float = 1.0, lag: float = 0.0
    ) -> None:
        """A worker begins after `lag` seconds: with a part of a token's, nothing of two agents happens at one time."""
        self._lag = lag
        self.model, self.native_calls, self._plans, self._seconds = "planned", native, plans, seconds
        self.contexts: list[Context] = []
        """Of each request."""
        self._ids: dict[str, int] = {}

    def prompt(self, messages: tuple[Message, ...], tools: Tools = ()) -> Span:
        text = "\n\n".join(message.content for message in messages)
        return Span(Origin.PROMPT, text, 1, self._encode(text))

    def injection(self, text: str, around: tuple[str, str] = ("", "")) -> tuple[str, tuple[int, ...]]:
        return text.join(around), self._encode(text.join(around))

    def turn(self, context: Context, text: str) -> tuple[str, tuple[int, ...]]:
        return self.injection(text)

    async def stream(self, context: Context, sampling: Sampling) -> AsyncGenerator[Chunk]:
        self.contexts.append(context)
        plan = next(plan for part, plan in self._plans.items() if part in context.spans[0].text)
        done = sum(span.tokens for span in context.spans if span.origin is Origin.SAMPLED)
        tokens = list(plan[done:])
        if done == 0 and plan is not next(iter(self._plans.values())):
            await asyncio.sleep(self._lag)
        for i, token in enumerate(tokens, 1):
            await asyncio.sleep(self._seconds)
            finish = FinishReason.LENGTH if i == sampling.max_tokens else None
            finish = FinishReason.EOS if i == len(tokens) or token.startswith("<tool_call>") else finish
            yield Chunk((token,), self._encode(token), (-0.5,), finish, "0")
            if finish is not None:
                return
        yield Chunk((), (), (), FinishReason.EOS, "0")

    async def aclose(self) -> None: ...

    def _encode(self, text: str) -> tuple[int, ...]:
        return (self._ids.setdefault(text, len(self._ids)),)


async def double(number: int, seconds: float = 3.0) -> str:
    """Doubles a number, in its time."""
    await asyncio.sleep(seconds)
    return str(2 * number)


DOUBLE = f"{Path(__file__).resolve()}:double"
"""Names that tool."""

"""A local engine whose organizers make given calls, as servers make a model do on `tool_choice`. What workers write,
and what the organizer writes after its last call, is the model's own."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

from models import END

from orgthink.engines.engine import Chunk, Context, FinishReason
from orgthink.engines.local.engine import LocalEngine
from orgthink.grammar.toolcall import ToolCall, render_call
from orgthink.organizations.prompts import Style, style_named
from orgthink.record.episode import Sampling

DONE = "Worker 1 is done"
"""Where this was pushed, a call of the status is not repeated any more."""
STEPS = 8
"""Decoding steps that a given call takes."""
STYLE = Style("short", {**style_named("paper").templates, "organizer_tools": "{query}"})
NAME = f"{Path(__file__).resolve()}:STYLE"
"""Names the style wherever a style is named: the tools explain themselves."""


class GivenCalls(LocalEngine):
    """Decodes a model of this process that ends its turns as ChatML does, but for given calls."""

    plans: Mapping[str, Sequence[ToolCall]]
    """Text of a question → the calls of its organizer, one a reply. The last one is repeated if it is the status."""

    async def stream(self, context: Context, sampling: Sampling, adapter: str | None = None) -> AsyncGenerator[Chunk]:
        if call := self._call(context):
            async for _ in super().stream(context, replace(sampling, max_tokens=STEPS)):
                pass  # the context is read, and the call takes time
            ids, pieces = self._tokenizer.encode(render_call(call)), self._tokenizer.pieces(context)
            end = self._tokenizer.id_of(END)
            yield Chunk((*map(pieces.piece, ids), ""), (*ids, end), finish=FinishReason.EOS)
            return
        async with aclosing(super().stream(context, sampling, adapter)) as stream:
            async for chunk in stream:
                yield chunk

    def _call(self, context: Context) -> ToolCall | None:
        """The next call of an organizer; `None` for workers, and after the last one."""
        text = context.text
        if "You are now the worker" in text or "You are a subprocess" in text:
            return None
        (plan,) = (plan for question, plan in self.plans.items() if question in text)
        made = sum(span.decoded for span in context.spans)
        if plan[-1].name == "status" and made >= len(plan):
            return None if DONE in text else plan[-1]
        return plan[made] if made < len(plan) else None

"""A tiny model that knows by heart an AsyncThink episode of each setting beyond the paper: a context that is inherited,
a result that is pushed, a worker that persists. A word is a token."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

from models import tiny_model
from taught import SHAPE, TEMPLATE, teach
from terse import STYLE

from orgthink.engines.engine import Chunk, Context, FinishReason, TokenEngine
from orgthink.models.tokenizer import Tokenizer
from orgthink.organizations.asyncthink import AsyncThink
from orgthink.organizations.prompts import Style
from orgthink.record.episode import Episode, Origin, Problem, Sampling, Span, Trace
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.budget import Limits

FOUND, VALUE = "8", "16"
NUMBERS = " ".join(str(i % 100) for i in range(125))
"""A long question, of which an heir computes nothing."""
NOTE = " ".join(str(i % 97) for i in range(330))
"""A long note to it: of less, the part of a block of vLLM's cache that is computed again would be much."""
SETTINGS: dict[str, dict[str, Any]] = {
    "inherit": {"worker_context": "inherit"},
    "push": {"delivery": "push"},
    "persistent": {"workers": "persistent"},
}
TEMPLATES = {
    **STYLE.templates,
    **dict.fromkeys(("inherit", "push", "persistent", "delegate", "alone"), ""),
    "inherited": f"{NOTE} subtask {{query}}",
    "follow_up": "then {query}",
}
BEYOND = Style("beyond", TEMPLATES)

WORDS = ("user:", "assistant:", "so", "hm", "w", "add", "then", "double", *SETTINGS, "<TELL-1>", "</TELL-1>")

FORK, AFTER = "so <FORK-1> add </FORK-1>", f"so <ANSWER> {FOUND} </ANSWER>"
MEANWHILE = 60 * " w"
"""What the organizer says until a result is pushed; it would go on."""
MOMENTS = range(2, 60, 4)
"""Words of it after which the model has seen a result arrive."""


def says(text: str) -> str:
    """What the model says after a context."""
    if "then double" in text:
        return f"so <RETURN> {VALUE} </RETURN>"
    if "subtask add" in text:
        return f"hm <RETURN> {FOUND} </RETURN>"
    joined = text.count("</JOIN-1>")
    if "persistent" in text:
        return (f"{FORK} <JOIN-1>", "so <TELL-1> double </TELL-1> hm <JOIN-1>", f"so <ANSWER> {VALUE} </ANSWER>")[
            joined
        ]
    return AFTER if joined else FORK + (MEANWHILE if "push" in text else " hm <JOIN-1>")


async def played(engine: TokenEngine, setting: str) -> Episode:
    """An episode of a setting."""
    organization = AsyncThink(prompts=f"{Path(__file__).resolve()}:BEYOND", **SETTINGS[setting])
    problem = Problem("p", "countdown", f"{setting} {NUMBERS if setting == 'inherit' else '3 5 7'}")
    return await attempt(organization, problem, Backing(engine, Sampling(400, 0.0)), limits=Limits(2))


def taught_settings(folder: Path) -> Path:
    tiny_model(folder, "words", words=WORDS, **SHAPE)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return teach(folder, list(_lessons(Tokenizer(folder))), width=256)


class _Dictated(TokenEngine):
    """Says what the model is to learn."""

    model, max_context = "dictated", 1024

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    async def stream(self, context: Context, sampling: Sampling) -> AsyncGenerator[Chunk]:
        (end,) = self._tokenizer.eos_ids
        pieces = self._tokenizer.pieces(context)
        for i in self._tokenizer.encode(says(context.text)):
            await asyncio.sleep(0)
            yield Chunk((pieces.piece(i),), (i,), (-1.0,))
        yield Chunk(("",), (end,), (-1.0,), FinishReason.EOS)


def _lessons(tokenizer: Tokenizer) -> Iterator[tuple[list[int], list[int]]]:
    for setting in SETTINGS:
        episode = asyncio.run(played(_Dictated(tokenizer), setting))
        for trace in episode.traces if setting != "push" else episode.traces[1:]:
            yield _lesson(trace.spans)
        if setting == "push":
            yield from _pushed(tokenizer, episode.root)


def _pushed(tokenizer: Tokenizer, root: Trace) -> Iterator[tuple[list[int], list[int]]]:
    """The organizer's lessons: nothing has arrived yet, and the result arrives at one moment or another."""
    prompt, result = (list(span.token_ids or ()) for span in (root.spans[0], root.spans[2]))
    before, after = (list(tokenizer.encode(text)) for text in (FORK + MEANWHILE, AFTER))
    fork = len(tokenizer.encode(FORK))
    yield prompt + before, [-100] * len(prompt) + before
    for moment in MOMENTS:
        known = prompt + before[: fork + moment] + result
        yield known + after, [-100] * len(known) + after


def _lesson(spans: tuple[Span, ...]) -> tuple[list[int], list[int]]:
    """The ids of a context, and of these the ones that its agent sampled; -100 for the others."""
    ids = [i for span in spans for i in span.token_ids or ()]
    return ids, [i if span.origin is Origin.SAMPLED else -100 for span in spans for i in span.token_ids or ()]

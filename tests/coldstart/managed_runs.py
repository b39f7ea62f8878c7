"""Graded episodes of managers: the real organization, agents whose calls fail now and then, replies by a rule."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Sequence
from pathlib import Path

from echo import ECHO, TASK
from terse import TERSE

from orgthink.engines.engine import Chunk, Context, Engine, FinishReason
from orgthink.evaluation.grading import grade
from orgthink.evaluation.plan import distinct
from orgthink.grammar.toolcall import CallStatus, ToolCall, read_responses, render_reply
from orgthink.models.tokenizer import Tokenizer
from orgthink.organizations.paramanager import ParaManager
from orgthink.record.episode import Episode, Message, Origin, Sampling, Span
from orgthink.record.folder import RunFolder
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.budget import Limits
from orgthink.runtime.clock import run_virtual
from orgthink.tools.faults import Faults

AGENTS = ("standard_reasoner", "critical_reviewer", "ensemble_solver")
"""Tools that need no sandbox and no corpus."""
RIGHT = 0.7
"""How often a manager's answer is right."""

Say = Callable[[Context, random.Random], str]
"""What is said next in a context, by luck."""


class Player(Engine):
    """An engine that says what a rule makes of its context, with the ids of a tokenizer if it has one."""

    model = "player"
    native_calls = False

    def __init__(self, say: Say, tokenizer: Tokenizer | None = None) -> None:
        self._say, self._tokenizer = say, tokenizer

    def prompt(self, messages: tuple[Message, ...]) -> Span:
        if self._tokenizer is not None:
            return self._tokenizer.prompt(messages)
        text = messages[0].content
        return Span(Origin.PROMPT, text, len(text.split()))

    def injection(self, text: str, around: tuple[str, str] = ("", "")) -> tuple[str, tuple[int, ...] | None]:
        return (text.join(around), None) if self._tokenizer is None else self._tokenizer.injection(text, around)

    def turn(self, context: Context, text: str) -> tuple[str, tuple[int, ...] | None]:
        return self.injection(text)

    async def stream(self, context: Context, sampling: Sampling) -> AsyncGenerator[Chunk]:
        text = self._say(context, random.Random(sampling.seed))
        if self._tokenizer is None:
            yield Chunk((text,), finish=FinishReason.EOS)
            return
        ids = (*self._tokenizer.encode(text), *self._tokenizer.eos_ids)
        yield Chunk((text, *[""] * (len(ids) - 1)), ids, finish=FinishReason.EOS)

    async def aclose(self) -> None: ...


class Chatting(Player):
    """A player whose tokenizer's template makes the turns, as engines with ids do."""

    def turn(self, context: Context, text: str) -> tuple[str, tuple[int, ...] | None]:
        assert self._tokenizer is not None
        return self._tokenizer.turn(text, context)


def managing(context: Context, luck: random.Random) -> str:
    """Asks everybody until somebody has said something, then ends; the answer is mostly right."""
    told = [span.text for span in context.spans if span.origin is Origin.INJECTED]
    answer = int(context.messages[0].content.rpartition(" ; ")[2].split()[0])
    if told and "<tool_response>" not in told[-1]:
        return f" <ANSWER> {answer + (luck.random() > RIGHT)} </ANSWER>"
    heard = [response for text in told for response in read_responses(text)]
    if any(response.status is CallStatus.OK for response in heard):
        return render_reply("enough", [ToolCall("final_answer", {})])
    return render_reply("ask", [ToolCall(tool, {}) for tool in AGENTS])


def helping(context: Context, luck: random.Random) -> str:
    """An agent of the pool has an answer."""
    return f" hm <ANSWER> {luck.randrange(10)} </ANSWER>"


def managed(
    tokenizer: Tokenizer | None, *, n: int = 4, samples: int = 2, rate: float = 0.5, player: type[Player] = Player
) -> list[Episode]:
    """Graded episodes of n problems; without a tokenizer they have no ids, as from an endpoint that chats."""
    organization = ParaManager(TERSE, pool={"a": "numbers"}, tools=AGENTS, brief=True, faults=Faults(rate, 7))
    backing = Backing(player(managing, tokenizer), Sampling(512, seed=3))
    roles = {"a": Backing(Player(helping), Sampling(512, seed=3))}

    async def all_of_them() -> list[Episode]:
        each = [(problem, sample) for problem in distinct(TASK, "train", 0, n) for sample in range(samples)]
        return await asyncio.gather(
            *(
                attempt(organization, problem, backing, roles=roles, limits=Limits(capacity=13), sample=sample)
                for problem, sample in each
            )
        )

    return [grade(episode, ECHO) for episode in run_virtual(all_of_them())]


def recorded(path: Path, episodes: Sequence[Episode]) -> Path:
    """A run folder with these episodes."""
    with RunFolder.create(path, "eval", None).journal() as journal:
        for episode in episodes:
            journal.append(episode)
    return path

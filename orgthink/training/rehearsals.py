"""Rehearsals: episodes of a manager's organization in which everybody plays a part, the manager too.

The organization, its grammar and its search are the real ones; the manager's replies are a teacher's, its agents say
what a real one might, right or wrong, and programs are worked out without being run. So tens of thousands of episodes
take a minute, and what a pocket manager learns from them is the form of its work. `lessons` is the endless stream.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from orgthink.engines.engine import Chunk, Context, Finish
from orgthink.engines.tokenizer import Tokenizer
from orgthink.episode import Episode, Message, Origin, Problem, Sampling, Span, Status, Trace
from orgthink.grammar.actions import Answer
from orgthink.grammar.asyncthink import DIALECT
from orgthink.grammar.toolcall import BadCall, Response, ToolCall, read_reply, read_responses
from orgthink.organizations.paramanager import ParaManager, ToolUse
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.budget import Limits
from orgthink.runtime.clock import run_virtual
from orgthink.runtime.result import Result
from orgthink.tasks import TASKS
from orgthink.tasks.expression import ExpressionError, parse
from orgthink.tools.faults import Faults
from orgthink.tools.python import python_tool
from orgthink.tools.search import retriever_named, search_tool
from orgthink.tools.tool import Tool
from orgthink.tools.toolbox import Suite
from orgthink.training.teachers import helpers, manager
from orgthink.training.teachers.arithmetic_review import worked
from orgthink.training.teachers.countdown_review import near_miss, solved

SHARES = {"arithmetic-mini": 0.25, "countdown-mini-single": 0.45, "ledger-mini": 0.3}
"""What managers of the pocket world work on, and how much of it."""
TASK_NAMES = tuple(SHARES)
SKILL = 0.5
"""Share of an agent's answers that are right."""
SERIAL = 0.15
"""Share of rehearsals with one call a round."""
FAULTS = 0.12
"""Share of calls that fail."""
AT_ONCE = 64
"""Episodes that are rehearsed together."""
CAPACITY = 9
"""Agents at work at once: a manager and more than it can ask at once."""
GOOD_AT = ("arithmetic", "countdown", "code review")
"""What managers are told of the models of a pool."""

Say = Callable[[Context, random.Random], str]
"""What is said next in a context."""


class Player:
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

    def injection(self, text: str) -> tuple[str, tuple[int, ...] | None]:
        return text, None if self._tokenizer is None else self._tokenizer.encode(text)

    def turn(self, context: Context, text: str) -> tuple[str, tuple[int, ...] | None]:
        return self.injection(text)

    async def stream(self, context: Context, sampling: Sampling) -> AsyncGenerator[Chunk]:
        text = self._say(context, random.Random(sampling.seed))
        if self._tokenizer is None:
            yield Chunk((text,), finish=Finish.EOS)
            return
        ids = (*self._tokenizer.encode(text), *self._tokenizer.eos_ids)
        yield Chunk((text, *[""] * (len(ids) - 1)), ids, finish=Finish.EOS)

    async def aclose(self) -> None:
        """Nothing is held."""


@dataclass(frozen=True)
class Rehearsal(ParaManager):
    """The pocket world's manager, whose programs are worked out."""

    prompts: str = "pocket"
    rounds: int = 5
    brief: bool = True
    aliases: bool = True
    response_tokens: int = 32

    def resources(self) -> tuple[Tool, Tool]:
        return _resources(self.suite)


@cache
def _resources(suite: Suite) -> tuple[Tool, Tool]:
    return python_tool(Worked()), search_tool(retriever_named(suite.corpus), topk=suite.topk)


FAILED = """Traceback (most recent call last):
  File "/code.py", line 1, in <module>
NameError: name 'copper' is not defined
"""
"""What a program leaves that does not work."""


class Worked:
    """Runs programs that print the values of expressions, by working them out."""

    async def run(self, code: str) -> Result:
        inside = re.fullmatch(r"\s*print\s*\((.*)\)\s*", code, re.DOTALL)
        parts = inside[1].split(",") if inside else [""]
        try:
            values = [parse(part).value for part in parts]
        except ExpressionError:
            return Result(FAILED, Status.ERROR)
        shown = (float(value) if "/" in part else value for part, value in zip(parts, values, strict=True))
        return Result(" ".join(map(str, shown)))


def managing(tools: frozenset[str], calls: int) -> Say:
    """The teacher of managers, as a rule of contexts."""

    def say(context: Context, rng: random.Random) -> str:
        asked = context.messages[0].content
        head, _, question = asked.partition(" ; ")
        rounds: list[tuple[tuple[ToolCall, ...], tuple[Response, ...]]] = []
        last, left = "", int(head.split()[3])
        for span in context.spans[1:]:
            if span.origin is Origin.SAMPLED:
                last = span.text
            elif "<tool_response>" in span.text:
                made = read_reply(last).calls
                said = read_responses(span.text)
                pairs = [(c, r) for c, r in zip(made, said, strict=False) if not isinstance(c, BadCall)]
                rounds.append((tuple(c for c, _ in pairs), tuple(r for _, r in pairs)))
                left -= 1
            else:
                return manager.answer(last)
        models = dict(re.findall(r"(m\d+): ([a-z ]+)", head))
        return manager.reply(manager.Seen(question, models, tools, tuple(rounds), left, calls), rng)

    return say


def helping(context: Context, rng: random.Random) -> str:
    """What an agent of the pool says."""
    role, kind, *words = context.messages[0].content.split()
    rest = " ".join(words)
    if role == "searcher":
        return helpers.queried(rest)
    if role == "coder":
        return helpers.coded(rest)
    if role == "reviewer":
        question, _, answers = rest.partition(" answers ")
        return helpers.reviewed(kind, question, answers.split(helpers.SEPARATOR), slip=rng)
    return f" {DIALECT.render(Answer(f' {_solved(kind, rest, rng)} '))}"


def _solved(kind: str, rest: str, rng: random.Random) -> str:
    """An answer, right or wrong."""
    if kind == "countdown":
        *numbers, _, target = rest.split()
        known = [int(number) for number in numbers]
        draw = rng.random()
        if draw < SKILL:
            return solved(known, int(target), rng.sample("+-*/", 4))[1]
        misses = [near_miss(known, int(target), rng) for _ in range(2 if draw > 0.93 else 1)]
        return helpers.SEPARATOR.join(misses)
    if kind != "arithmetic":
        return str(rng.randint(1, 99))
    value = worked(rest).answer
    return str(value if rng.random() < SKILL else max(0, value + rng.choice((-10, -2, -1, 1, 2, 10))))


def rehearsed(problems: Sequence[Problem], organization: ParaManager, tokenizer: Tokenizer, seed: int) -> list[Trace]:
    """What managers said and saw at these problems, one trace each."""
    say = managing(frozenset(organization.tools), organization.calls)
    backing = Backing(Player(say, tokenizer), Sampling(512, seed=seed))
    roles = dict.fromkeys(organization.pool, Backing(Player(helping), Sampling(512, seed=seed)))

    async def all_of_them() -> list[Episode]:
        limits = Limits(capacity=CAPACITY)
        one = (attempt(organization, problem, backing, roles=roles, limits=limits) for problem in problems)
        return await asyncio.gather(*one)

    return [episode.root for episode in run_virtual(all_of_them())]


def lessons(seed: int, pool: int, tokenizer: Tokenizer, *, alone: bool = False) -> Iterator[Trace]:
    """An endless stream of managers' traces, or of those who use tools `alone`; the same for the same pool."""
    rng = random.Random(f"rehearsals {seed}/{pool}")
    problems = {name: TASKS[name].problems("train", rng.randrange(1 << 30)) for name in TASK_NAMES}
    while True:
        faults = Faults(FAULTS, rng.getrandbits(31))
        if alone:
            organization = Rehearsal(tools=ToolUse.tools, faults=faults)
        else:
            members = {f"p{i}": words for i, words in enumerate(rng.sample(GOOD_AT, len(GOOD_AT)))}
            organization = Rehearsal(pool=members, calls=1 if rng.random() < SERIAL else 4, faults=faults)
        names = rng.choices(list(SHARES), list(SHARES.values()), k=AT_ONCE)
        chosen = [next(problems[name]) for name in names]
        yield from rehearsed(chosen, organization, tokenizer, rng.getrandbits(31))

"""Who plays the parts of a rehearsal: a teacher's manager, the agents that it asks, and a python on paper.

Each says what a rule makes of its context, so tens of thousands of episodes take a minute.
"""

from __future__ import annotations

import random
import re
from collections.abc import AsyncGenerator, Callable
from fractions import Fraction
from functools import cache, partial
from itertools import permutations, product

from orgthink.engines.engine import Chunk, Context, FinishReason
from orgthink.engines.tokenizer import Tokenizer
from orgthink.episode import Message, Origin, Sampling, Span, Status
from orgthink.grammar.toolcall import TAGS, ToolCall, read_reply, read_responses
from orgthink.runtime.result import Result
from orgthink.tasks.expression import ExpressionError, parse
from orgthink_pocket.style import NAMED, SEPARATOR
from orgthink_pocket.tasks.arithmetic import LARGEST
from orgthink_pocket.teachers import helpers, manager
from orgthink_pocket.teachers.arithmetic_review import worked
from orgthink_pocket.teachers.countdown import LARGEST as LARGEST_NUMBER
from orgthink_pocket.teachers.countdown import OPERATORS
from orgthink_pocket.teachers.countdown_review import NO_SOLUTION, answered, near_miss, solved
from orgthink_pocket.teachers.countdown_review import worked as worked_out
from orgthink_pocket.teachers.seen import Round, Seen

SKILL = 0.6
"""Share of an agent's answers that are right …"""
BETTER = 0.3
"""… and how much more of them, if its model is said to be good at such problems."""
EMPTY = 0.3
"""Share of the answers to countdown that say there is none, of those that are not right …"""
SEVERAL = 0.5
"""Share of the solutions of countdown that are the first of several offers, the others of which are worth nothing."""

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
            yield Chunk((text,), finish=FinishReason.EOS)
            return
        ids = (*self._tokenizer.encode(text), *self._tokenizer.eos_ids)
        yield Chunk((text, *[""] * (len(ids) - 1)), ids, finish=FinishReason.EOS)

    async def aclose(self) -> None:
        """Nothing is held."""


def managing(tools: frozenset[str], calls: int) -> Say:
    """The teacher of managers with these tools and so many calls a round, as a rule of contexts."""

    def say(context: Context, rng: random.Random) -> str:
        head, _, question = context.messages[0].content.partition(" ; ")
        last, ended = "", False
        rounds: list[Round] = []
        for span in context.spans[1:]:
            if span.origin is Origin.SAMPLED:
                last = span.text
            elif TAGS.response[0] in span.text:
                rounds.append(_round(last, span.text))
            else:
                ended = True  # it is asked for its final answer
        left = int(head.split()[3]) - len(rounds)
        models = dict(re.findall(r"(m\d+): ([a-z ]+)", head))
        seen = Seen(question, models, tools, tuple(rounds), left, calls)
        return manager.answer(seen) if ended else manager.reply(seen, rng)

    return say


def _round(reply: str, told: str) -> Round:
    """The calls of a reply that could be read, and what was told of them."""
    pairs = zip(read_reply(reply).calls, read_responses(told), strict=False)
    kept = [(call, response) for call, response in pairs if isinstance(call, ToolCall)]
    return tuple(call for call, _ in kept), tuple(response for _, response in kept)


def helping(told: str) -> Say:
    """What an agent of the pool says whose model the manager is told this of: only who is good at code writes it."""

    def say(context: Context, rng: random.Random) -> str:
        role, kind, *words = context.messages[0].content.split()
        rest = " ".join(words)
        if role == "sequential":
            skill = SKILL + (BETTER if kind in told else 0.0)
            return f" {answered(_solved(kind, rest, skill, rng))}"
        if "code" not in told:
            return f" {NO_SOLUTION}"
        if role == "finder":
            return helpers.queried(rest)
        if role == "coder":
            return helpers.coded(rest)
        question, _, answers = rest.partition(" answers ")
        return helpers.reviewed(kind, question, answers.split(helpers.SEPARATOR), slip=rng)

    return say


def _solved(kind: str, rest: str, skill: float, rng: random.Random) -> str:
    """An answer, right or wrong; of several countdowns, to the first; a guess to anything but these and arithmetic."""
    if kind == "countdown":
        *numbers, _, target = rest.partition(SEPARATOR)[0].rpartition(NAMED)[2].split()
        known = [int(number) for number in numbers]
        draw = rng.random()
        if draw >= skill and rng.random() < EMPTY:
            return NO_SOLUTION
        right = solved(known, int(target), rng.sample(OPERATORS, len(OPERATORS)))[1]
        wrong = partial(near_miss, known, int(target), rng)
        if right == NO_SOLUTION:  # the target is made up
            right = _worth_it(int(target), rng)
            wrong = partial(_worth_it, int(target) + rng.choice((-3, -1, 2, 5)), rng)
        first = right if draw < skill else wrong()
        others = rng.randint(1, 3) if rng.random() < SEVERAL else 0
        return helpers.SEPARATOR.join([first, *(wrong() for _ in range(others))])
    if kind != "arithmetic":
        return str(rng.randint(1, 99))
    value = worked(rest).answer
    near = [value + away for away in (-10, -2, -1, 1, 2, 10) if 0 <= value + away <= LARGEST]
    return str(value if rng.random() < skill else rng.choice(near))


def _worth_it(target: int, rng: random.Random) -> str:
    """Three numbers that make a target, whichever are given: for targets that are made up."""
    return rng.choice(_triples()[target])


@cache
def _triples() -> dict[int, list[str]]:
    """All that can be made of three numbers, by what it is worth."""
    made: dict[int, list[str]] = {}
    for (x, y, z), inner, outer in product(permutations(range(1, LARGEST_NUMBER + 1), 3), OPERATORS, OPERATORS):
        expression = f"( {x} {inner} {y} ) {outer} {z}"
        work = worked_out(expression)
        if work is not None:
            made.setdefault(work[-1], []).append(expression)
    return made


FAILED = """Traceback (most recent call last):
  File "/code.py", line 1, in <module>
NameError: name 'copper' is not defined
"""
"""What a program leaves that does not work."""


class OnPaper:
    """Runs programs that print expressions, or whether two are the same, by working them out; any other fails."""

    async def run(self, code: str) -> Result:
        inside = re.fullmatch(r"\s*print\s*\((.*)\)\s*", code, re.DOTALL)
        try:
            values = [_worth(part) for part in (inside[1].split(",") if inside else [""])]
        except ExpressionError:
            return Result(FAILED, Status.ERROR)
        return Result(" ".join(map(str, values)))


def _worth(text: str) -> Fraction | float | bool:
    """What python makes of an expression, or of a comparison of two; ExpressionError if it is neither."""
    left, compared, right = text.partition("==")
    value = parse(left).value
    if compared:
        return value == parse(right).value
    return float(value) if "/" in left else value

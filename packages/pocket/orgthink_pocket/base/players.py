"""The players of a rehearsal: the teacher of managers, rule-based agents, and a python that evaluates expressions.

The reply of each follows from its context by a rule, so tens of thousands of episodes take a minute.
"""

from __future__ import annotations

import random
import re
from collections.abc import AsyncGenerator, Callable
from fractions import Fraction
from functools import cache, partial
from itertools import permutations, product

from orgthink.engines.engine import Chunk, Context, Engine, FinishReason
from orgthink.grammar.toolcall import RESPONSE_TAGS, ToolCall, read_reply, read_responses, render_reply
from orgthink.models.tokenizer import Tokenizer
from orgthink.record.episode import Message, Origin, Sampling, Span, Status
from orgthink.runtime.agent import Result
from orgthink.tasks.expression import ExpressionError, parse
from orgthink.tools.toolbox import FINAL
from orgthink_pocket.base import agents, manager_arithmetic, manager_countdown
from orgthink_pocket.base.manager_view import COUNTDOWNS, Round, View
from orgthink_pocket.base.scan import LARGEST as LARGEST_NUMBER
from orgthink_pocket.base.scan import NO_SOLUTION, OPERATORS, answered, near_miss, solved
from orgthink_pocket.base.scan import worked as worked_out
from orgthink_pocket.base.slips import worked
from orgthink_pocket.style import NAMED, SEPARATOR
from orgthink_pocket.tasks.arithmetic import LARGEST

SKILL = 0.6
"""Share of an agent's answers that are right."""
BETTER = 0.3
"""Added to SKILL if the agent's model is described as good at such problems."""
EMPTY = 0.3
"""Share of the wrong answers to countdown that state there is no solution."""
SEVERAL = 0.5
"""Share of the answers to countdown with one to three further, wrong solutions."""

Reply = Callable[[Context, random.Random], str]
"""A rule: the reply in a context."""


class Player(Engine):
    """An engine whose replies follow a rule. Its spans have token ids if it has a tokenizer."""

    model = "player"

    def __init__(self, reply: Reply, tokenizer: Tokenizer | None = None) -> None:
        self._reply, self._tokenizer = reply, tokenizer

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
        text = self._reply(context, random.Random(sampling.seed))
        if self._tokenizer is None:
            yield Chunk((text,), finish=FinishReason.EOS)
            return
        ids = (*self._tokenizer.encode(text), *self._tokenizer.eos_ids)
        yield Chunk((text, *[""] * (len(ids) - 1)), ids, finish=FinishReason.EOS)

    async def aclose(self) -> None:
        """A player holds no resources."""


def managing(tools: frozenset[str], calls: int) -> Reply:
    """The rule of a teacher of managers with these tools and at most `calls` calls a round."""

    def reply(context: Context, rng: random.Random) -> str:
        head, _, question = context.messages[0].content.partition(" ; ")
        last, ended = "", False
        rounds: list[Round] = []
        for span in context.spans[1:]:
            if span.origin is Origin.SAMPLED:
                last = span.text
            elif RESPONSE_TAGS[0] in span.text:
                rounds.append(_round(last, span.text))
            else:
                ended = True  # the request for the final answer
        left = int(head.split()[3]) - len(rounds)
        models = tuple(dict.fromkeys(re.findall(r"m\d+", head)))
        view = View(question, models, tools, tuple(rounds), left, calls)
        teacher = manager_countdown if view.kind == "countdown" else manager_arithmetic
        if ended:
            return f" {answered(teacher.answer(view) or NO_SOLUTION)}"
        thought, requests = teacher.move(view, rng)
        return render_reply(f" {thought} ", requests or [ToolCall(FINAL, {})])

    return reply


def _round(reply: str, responses: str) -> Round:
    """The readable calls of a reply, and their responses."""
    pairs = zip(read_reply(reply).calls, read_responses(responses), strict=False)
    readable = [(call, response) for call, response in pairs if isinstance(call, ToolCall)]
    return tuple(call for call, _ in readable), tuple(response for _, response in readable)


def helping(skills: str) -> Reply:
    """The rule of an agent, by the description of its model. Only models with the skill `code` write programs."""

    def reply(context: Context, rng: random.Random) -> str:
        role, kind, *words = context.messages[0].content.split()
        rest = " ".join(words)
        if role == "sequential":
            skill = SKILL + (BETTER if _skill(kind) in skills else 0.0)
            return f" {answered(_solved(kind, rest, skill, rng))}"
        if "code" not in skills:
            return f" {NO_SOLUTION}"
        if role == "finder":
            return agents.queried(rest)
        if role == "coder":
            return agents.coded(rest)
        question, _, answers = rest.partition(" answers ")
        return agents.reviewed(kind, question, answers.split(SEPARATOR), slip=rng)

    return reply


def _skill(kind: str) -> str:
    """What it takes to answer a question of this kind."""
    return "countdown" if kind in COUNTDOWNS else kind


def _solved(kind: str, rest: str, skill: float, rng: random.Random) -> str:
    """An answer that is right with probability `skill`; to several countdowns, to the first; a guess to other kinds."""
    if kind in COUNTDOWNS:
        *numbers, _, target = rest.partition(SEPARATOR)[0].rpartition(NAMED)[2].split()
        known = [int(number) for number in numbers]
        draw = rng.random()
        if draw >= skill and rng.random() < EMPTY:
            return NO_SOLUTION
        right = solved(known, int(target), rng.sample(OPERATORS, len(OPERATORS)))[1]
        wrong = partial(near_miss, known, int(target), rng)
        if right == NO_SOLUTION:  # the target is impossible
            right = _expression_of(int(target), rng)
            wrong = partial(_expression_of, int(target) + rng.choice((-3, -1, 2, 5)), rng)
        first = right if draw < skill else wrong()
        others = rng.randint(1, 3) if rng.random() < SEVERAL else 0
        return SEPARATOR.join([first, *(wrong() for _ in range(others))])
    if kind != "arithmetic":
        return str(rng.randint(1, 99))
    value = worked(rest).answer
    near = [value + away for away in (-10, -2, -1, 1, 2, 10) if 0 <= value + away <= LARGEST]
    return str(value if rng.random() < skill else rng.choice(near))


def _expression_of(target: int, rng: random.Random) -> str:
    """An expression of any three numbers with the value of an impossible target."""
    return rng.choice(_triples()[target])


@cache
def _triples() -> dict[int, list[str]]:
    """All expressions of three numbers, by value."""
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
"""Output of a program that fails."""


class OnPaper:
    """Runs programs that print expressions or comparisons, by evaluating these; any other program fails."""

    async def run(self, code: str) -> Result:
        inside = re.fullmatch(r"\s*print\s*\((.*)\)\s*", code, re.DOTALL)
        try:
            values = [_value(part) for part in (inside[1].split(",") if inside else [""])]
        except ExpressionError:
            return Result(FAILED, Status.ERROR)
        return Result(" ".join(map(str, values)))


def _value(text: str) -> Fraction | float | bool:
    """Value of an expression or of a comparison of two. ExpressionError for other texts."""
    left, compared, right = text.partition("==")
    value = parse(left).value
    if compared:
        return value == parse(right).value
    return float(value) if "/" in left else value

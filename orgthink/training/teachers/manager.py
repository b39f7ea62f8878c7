"""What a manager of the pocket world imitates before it learns to orchestrate: the form of replies, with most decisions
left to chance.

A reply begins with what the manager has in mind, and ends with calls:

    <reasoning> compute 3 * 17 + 2 </reasoning><tool_call>…</tool_call><tool_call>…</tool_call>

How many calls it makes, of which tools and which models, whether it checks what came back, and when it ends, is drawn
at random; so is what it does about failures, but for giving up. What pays is for reinforcement learning to find.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from orgthink.grammar.toolcall import TAGS, CallStatus, Response, ToolCall, render_reply
from orgthink.tasks.arithmetic import LARGEST
from orgthink.tasks.ledger import PRICE, named
from orgthink.tools.toolbox import FINAL
from orgthink.training.teachers.countdown import OPERATORS, first_hit
from orgthink.training.teachers.countdown_review import NO_SOLUTION, answered
from orgthink.training.teachers.helpers import SEPARATOR

CALCULATORS = ("standard_reasoner", "code_reasoner", "python", "ensemble_solver")
"""Tools that return an answer."""
WANTED = {
    "standard_reasoner": "",
    "critical_reviewer": "review",
    "code_reasoner": "code",
    "knowledge_searcher": "code",
}
"""What a model should be good at for a tool; reasoners, at the kind of problem."""
MATCHED = 0.4
"""Share of calls whose model is chosen by what it is good at; the others ask any."""
LOOKED_AT = 4
"""Offers that are checked at once."""
END = f"final {NO_SOLUTION}"
"""In mind when there is nothing to answer."""

_NUMBERS = frozenset(map(str, range(LARGEST + 1)))

Round = tuple[tuple[ToolCall, ...], tuple[Response, ...]]
"""Calls that could be read, and what came back, in the same order."""
Move = tuple[str, list[ToolCall]]
"""What it has in mind, and its calls; none ends the rounds."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a manager sees when it writes its next reply."""

    question: str
    """The problem in the words of the pocket models."""
    models: dict[str, str]
    """What the models that it may ask are good at, by their ids."""
    tools: frozenset[str]
    """Tools it may call."""
    rounds: tuple[Round, ...]
    """So far."""
    left: int
    """Rounds left, this one included."""
    most: int
    """Calls of a round at most."""

    @property
    def ok(self) -> list[tuple[ToolCall, str]]:
        """Calls that went well and what they returned, in order."""
        return _returned(self.rounds)


def reply(seen: Seen, rng: random.Random) -> str:
    """The next reply."""
    kind, _, rest = seen.question.partition(" ")
    thought, calls = _countdown(seen, rest, rng) if kind == "countdown" else _arithmetic(seen, rest, rng)
    return render_reply(f" {thought} ", calls or [ToolCall(FINAL, {})])


def answer(last: str) -> str:
    """The final answer of a manager whose last reply had this in mind: `final 19`."""
    _, final, thought = last.partition(TAGS.reasoning[1])[0].rpartition("final ")
    return f" {answered(thought.strip() if final else NO_SOLUTION)}"


def _returned(rounds: Sequence[Round]) -> list[tuple[ToolCall, str]]:
    """Calls of some rounds that went well and what they returned, in order."""
    return [
        (call, response.value)
        for calls, responses in rounds
        for call, response in zip(calls, responses, strict=False)
        if response.status is CallStatus.OK
    ]


# Arithmetic, and that with prices


def _arithmetic(seen: Seen, expression: str, rng: random.Random) -> Move:
    """Look up what is missing, compute, perhaps check, end. Expressions of arithmetic have nothing to look up."""
    known = {f"{m[1]} {m[2]}": m[3] for _, value in seen.ok for m in PRICE.finditer(value)}
    names = named(expression)
    missing = [name for name in names if name not in known]
    for name in names:
        expression = expression.replace(name, known.get(name, name))
    if missing and seen.left > 1:
        return f"look {SEPARATOR.join(missing)}", _look(seen, missing, rng)
    candidates = _candidates(seen)
    if not candidates:
        return (f"compute {expression}", _compute(seen, expression, bool(names), rng)) if seen.left > 1 else (END, [])
    voted = _vote(seen, candidates)
    found = f"found {' '.join(candidates)} ;"
    calls: list[ToolCall] = []
    if seen.left > 1 and rng.random() > (0.85 if candidates.count(voted) > 1 else 0.55):
        calls = _compute(seen, expression, bool(names), rng)[: rng.randint(0, seen.most - 1)]
        if "critical_reviewer" in seen.tools and (not calls or rng.random() < 0.7):
            calls.insert(0, _call(seen, "critical_reviewer", rng, f"arithmetic {expression}" if names else None))
    return (f"{found} check {expression}", calls) if calls else (f"{found} final {voted}", [])


def _look(seen: Seen, missing: Sequence[str], rng: random.Random) -> list[ToolCall]:
    """Search for what is missing, in one call or several, or let an agent do it."""
    draw = rng.random()
    at_once = ToolCall("search", {"query_list": list(missing)})
    if "knowledge_searcher" in seen.tools and draw < 0.3:
        calls = [_call(seen, "knowledge_searcher", rng, None)]
        return [*calls, at_once][: seen.most] if draw < 0.1 else calls
    if draw < 0.5 and len(missing) > 1:
        return [ToolCall("search", {"query_list": [name]}) for name in missing][: seen.most]
    return [at_once]


def _compute(seen: Seen, expression: str, looked_up: bool, rng: random.Random) -> list[ToolCall]:
    """Ask for the value of an expression, in one way or several. An ensemble knows no prices."""
    subtask = f"arithmetic {expression}" if looked_up else None
    ways = [tool for tool in CALCULATORS if tool in seen.tools and not (looked_up and tool == "ensemble_solver")]
    weights = [1.0 if tool != "ensemble_solver" else 0.25 for tool in ways]
    calls: list[ToolCall] = []
    for _ in range(min(seen.most, rng.choices((1, 2, 3, 4), (0.3, 0.3, 0.25, 0.15))[0])):
        (way,) = rng.choices(ways, weights)
        if way == "python":
            call = _python([expression])
        elif way == "ensemble_solver":
            call = ToolCall("ensemble_solver", {})
        else:
            call = _call(seen, way, rng, subtask)
        if call not in calls:
            calls.append(call)
    return calls


def _candidates(seen: Seen) -> list[str]:
    """Numbers that calculators returned."""
    found = [value.strip() for call, value in seen.ok if call.name in CALCULATORS]
    return [value for value in found if value in _NUMBERS]


def _vote(seen: Seen, candidates: Sequence[str]) -> str:
    """The number that most calls returned; what a reviewer found bad counts less, what it found ok more."""
    votes = Counter(candidates)
    for verdict in (value for call, value in seen.ok if call.name == "critical_reviewer"):
        for number, word in re.findall(r"(\d+) (ok|bad)", verdict):
            if number in votes:
                votes[number] += 1 if word == "ok" else -1
    exact = [value.strip() for call, value in seen.ok if call.name in ("python", "code_reasoner")]
    return max(votes, key=lambda number: (votes[number], number in exact))


# Countdown


def _countdown(seen: Seen, rest: str, rng: random.Random) -> Move:
    """Ask for solutions, perhaps check what they are worth, ask again or end.

    What was checked last is written down beside the target, where the two are easy to compare.
    """
    target = rest.split()[-1]
    offered, checked = _offers(seen)
    good = [offer for offer in offered if checked.get(offer) == target]
    fresh = [offer for offer in offered if offer not in checked]
    best = next(iter([*good, *fresh, *offered]), NO_SOLUTION)
    judged = "".join(
        f"{offer} = {worth} {target} {'ok' if worth == target else 'bad'} ; "
        for offer, worth in _worths(seen.rounds[-1:])
    )
    if good or seen.left <= 1 or (fresh and rng.random() < 0.15):
        return f"{judged}final {best}", []
    if "standard_reasoner" not in seen.tools:
        return _tried(rest, rng)
    if fresh:
        return f"{judged}check {SEPARATOR.join(fresh[:LOOKED_AT])}", _check(seen, fresh[:LOOKED_AT], rng)
    return f"{judged}ask {target}", _ask(seen, rng)


def _offers(seen: Seen) -> tuple[list[str], dict[str, str]]:
    """Expressions that were offered, in order, and what those are worth that were checked; `bad` if a reviewer says so.

    A tool user has its offers from its own thoughts: those that it let python compute.
    """
    offered: list[str] = []
    checked = dict(_worths(seen.rounds))
    target = seen.question.split()[-1]
    for call, value in seen.ok:
        parts = [part.strip() for part in value.split(";")]
        if call.name == "python":
            offered += _printed(call)
        elif call.name == "critical_reviewer":
            for offer, _, word in (part.rpartition(" ") for part in parts):
                checked.setdefault(offer, target if word == "ok" else "bad")
        elif call.name in CALCULATORS:
            offered += [part for part in parts if part not in ("", NO_SOLUTION)]
    return list(dict.fromkeys(offered)), checked


def _worths(rounds: Sequence[Round]) -> list[tuple[str, str]]:
    """Expressions that programs of some rounds printed, and what they are worth."""
    return [
        (offer, worth.removesuffix(".0"))
        for call, value in _returned(rounds)
        if call.name == "python"
        for offer, worth in zip(_printed(call), value.split(), strict=False)
    ]


def _tried(rest: str, rng: random.Random) -> Move:
    """Of one who has nobody to ask: it scans for a solution itself, and lets python compute what that is worth."""
    *numbers, _, target = rest.split()
    lines, hit = first_hit([int(number) for number in numbers], int(target), rng.sample(OPERATORS, len(OPERATORS)))
    return (lines, [_python([hit])]) if hit else (END, [])


def _check(seen: Seen, fresh: Sequence[str], rng: random.Random) -> list[ToolCall]:
    """Let python or a reviewer look at what was offered; perhaps ask for more at the same time."""
    draw = rng.random()
    calls: list[ToolCall] = []
    if draw < 0.8 or "critical_reviewer" not in seen.tools:
        calls.append(_python(fresh))
    if draw > 0.6 and "critical_reviewer" in seen.tools:
        calls.append(_call(seen, "critical_reviewer", rng, None))
    if rng.random() < 0.25:
        calls += _ask(seen, rng)
    return calls[: seen.most]


def _ask(seen: Seen, rng: random.Random) -> list[ToolCall]:
    """Ask one agent or several for a solution: the same model may be asked twice, it samples."""
    if rng.random() < 0.1:
        return [ToolCall("ensemble_solver", {})]
    count = min(seen.most, rng.choices((1, 2, 3, 4), (0.3, 0.3, 0.2, 0.2))[0])
    return [_call(seen, "standard_reasoner", rng, None) for _ in range(count)]


# Calls


def _call(seen: Seen, tool: str, rng: random.Random, subtask: str | None) -> ToolCall:
    """An agent, with any of the models or one that is good at it."""
    kind = "countdown" if seen.question.startswith("countdown") else "arithmetic"
    fitting = [i for i, told in seen.models.items() if (WANTED[tool] or kind) in told.split()]
    ids = fitting if fitting and rng.random() < MATCHED else list(seen.models)
    arguments: dict[str, Any] = {"model_id": rng.choice(ids)} if ids else {}
    return ToolCall(tool, arguments | ({} if subtask is None else {"subtask": f" {subtask}"}))


def _python(expressions: Sequence[str]) -> ToolCall:
    """A program that prints what expressions are worth."""
    return ToolCall("python", {"code": f"print( {' , '.join(expressions)})"})


def _printed(call: ToolCall) -> list[str]:
    """The expressions of such a program, `print( a , b)`."""
    inside = str(call.arguments["code"]).strip().removeprefix("print(").strip()
    return [part.strip() for part in inside[:-1].split(",")] if inside.endswith(")") else []

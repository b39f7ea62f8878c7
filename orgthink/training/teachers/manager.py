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

from orgthink.grammar.actions import Answer
from orgthink.grammar.asyncthink import DIALECT
from orgthink.grammar.toolcall import CallStatus, Response, ToolCall, render_reply
from orgthink.training.teachers.countdown import OPERATORS, first_hit

NONE = "none"
"""The answer of one who has none."""
CALCULATORS = ("standard_reasoner", "code_reasoner", "python", "ensemble_solver")
"""Tools that return an answer."""

_PASSAGE = re.compile(r"([a-z]+) in ([a-z]+) costs (\d+) coins")


@dataclass(frozen=True, slots=True)
class Seen:
    """What a manager sees when it writes its next reply."""

    question: str
    """The problem in the words of the pocket models."""
    models: dict[str, str]
    """What the models that it may ask are good at, by their ids."""
    tools: frozenset[str]
    """Tools it may call."""
    rounds: tuple[tuple[tuple[ToolCall, ...], tuple[Response, ...]], ...]
    """Its calls so far and what came back, round by round; only calls that could be read."""
    left: int
    """Rounds left, this one included."""
    most: int
    """Calls of a round at most."""

    @property
    def ok(self) -> list[tuple[ToolCall, str]]:
        """Calls that went well and what they returned, in order."""
        return [
            (call, response.value)
            for calls, responses in self.rounds
            for call, response in zip(calls, responses, strict=False)
            if response.status is CallStatus.OK
        ]


def reply(seen: Seen, rng: random.Random) -> str:
    """The next reply."""
    kind, _, rest = seen.question.partition(" ")
    thought, calls = _countdown(seen, rest, rng) if kind == "countdown" else _arithmetic(seen, rest, rng)
    return render_reply(f" {thought} ", calls or [ToolCall("final_answer", {})])


def answer(last: str) -> str:
    """The final answer of a manager whose last reply had this in mind: `final 19`."""
    _, final, thought = last.partition("</reasoning>")[0].rpartition("final ")
    return f" {DIALECT.render(Answer(f' {thought.strip() if final else NONE} '))}"


END = f"final {NONE}"
"""In mind when there is nothing to answer."""

Move = tuple[str, list[ToolCall]]
"""What it has in mind, and its calls; none ends the rounds."""


def _arithmetic(seen: Seen, expression: str, rng: random.Random) -> Move:
    """Look up what is missing, compute, perhaps check, end. Expressions of arithmetic have nothing to look up."""
    known = {f"{m[1]} {m[2]}": m[3] for _, value in seen.ok for m in _PASSAGE.finditer(value)}
    names = re.findall(r"[a-z]+ [a-z]+", expression)
    missing = list(dict.fromkeys(name for name in names if name not in known))
    for name in names:
        expression = expression.replace(name, known.get(name, name))
    voted = _vote(seen)
    if missing and seen.left > 1:
        return f"look {' ; '.join(missing)}", _look(seen, missing, rng)
    if voted is None:
        return (f"compute {expression}", _compute(seen, expression, bool(names), rng)) if seen.left > 1 else (END, [])
    found = f"found {' '.join(_candidates(seen))} ;"
    agree = Counter(_candidates(seen))[voted]
    calls: list[ToolCall] = []
    if seen.left > 1 and rng.random() > (0.85 if agree > 1 else 0.55):
        calls = _compute(seen, expression, bool(names), rng)[: rng.randint(0, seen.most - 1)]
        if "critical_reviewer" in seen.tools and (not calls or rng.random() < 0.7):
            calls.insert(0, _call(seen, "critical_reviewer", rng, f"arithmetic {expression}" if names else None))
    return (f"{found} check {expression}", calls) if calls else (f"{found} final {voted}", [])


def _look(seen: Seen, missing: Sequence[str], rng: random.Random) -> list[ToolCall]:
    """Search for what is missing, in one call or several, or let an agent do it."""
    draw = rng.random()
    if "knowledge_searcher" in seen.tools and draw < 0.3:
        calls = [_call(seen, "knowledge_searcher", rng, None)]
        if draw < 0.1:
            calls.append(ToolCall("search", {"query_list": list(missing)}))
        return calls[: seen.most]
    if draw < 0.5 and len(missing) > 1:
        return [ToolCall("search", {"query_list": [name]}) for name in missing][: seen.most]
    return [ToolCall("search", {"query_list": list(missing)})]


def _compute(seen: Seen, expression: str, looked_up: bool, rng: random.Random) -> list[ToolCall]:
    """Ask for the value of an expression, in one way or several."""
    subtask = f"arithmetic {expression}" if looked_up else None
    ways = [tool for tool in CALCULATORS if tool in seen.tools and not (looked_up and tool == "ensemble_solver")]
    weights = [1.0 if tool != "ensemble_solver" else 0.25 for tool in ways]
    calls: list[ToolCall] = []
    for _ in range(min(seen.most, rng.choices((1, 2, 3, 4), (0.3, 0.3, 0.25, 0.15))[0])):
        (way,) = rng.choices(ways, weights)
        if way == "python":
            call = ToolCall("python", {"code": f"print( {expression})"})
        elif way == "ensemble_solver":
            call = ToolCall("ensemble_solver", {})
        else:
            call = _call(seen, way, rng, subtask)
        if call not in calls:
            calls.append(call)
    return calls


GOOD_AT = {
    "standard_reasoner": "",
    "critical_reviewer": "review",
    "code_reasoner": "code",
    "knowledge_searcher": "code",
}
"""What a model should be good at for a tool; reasoners, at the kind of problem."""
MATCHED = 0.4
"""Share of calls whose model is chosen by what it is good at; the others ask any."""


def _call(seen: Seen, tool: str, rng: random.Random, subtask: str | None) -> ToolCall:
    """An agent, with any of the models or one that is good at it."""
    kind = "countdown" if seen.question.startswith("countdown") else "arithmetic"
    fitting = [i for i, told in seen.models.items() if (GOOD_AT[tool] or kind) in told.split()]
    ids = fitting if fitting and rng.random() < MATCHED else list(seen.models)
    arguments: dict[str, Any] = {"model_id": rng.choice(ids)} if ids else {}
    return ToolCall(tool, arguments | ({} if subtask is None else {"subtask": f" {subtask}"}))


def _candidates(seen: Seen) -> list[str]:
    """Numbers that calculators returned."""
    found = [value.strip() for call, value in seen.ok if call.name in CALCULATORS]
    return [value for value in found if value.isdigit() and len(value) < 4]


def _vote(seen: Seen) -> str | None:
    """The number that most calls returned; what a reviewer found bad counts less, what it found ok more."""
    votes = Counter(_candidates(seen))
    if not votes:
        return None
    for verdict in _verdicts(seen):
        for number, word in re.findall(r"(\d+) (ok|bad)", verdict):
            if number in votes:
                votes[number] += 1 if word == "ok" else -1
    exact = [value.strip() for call, value in seen.ok if call.name in ("python", "code_reasoner")]
    return max(votes, key=lambda number: (votes[number], number in exact))


def _verdicts(seen: Seen) -> list[str]:
    return [value for call, value in seen.ok if call.name == "critical_reviewer"]


def _countdown(seen: Seen, rest: str, rng: random.Random) -> Move:
    """Ask for solutions, perhaps check what they are worth, ask again or end.

    What was checked last is written down beside the target, where the two are easy to compare.
    """
    target = rest.split()[-1]
    offered, checked = _offers(seen)
    good = [offer for offer in offered if checked.get(offer) == target]
    fresh = [offer for offer in offered if offer not in checked]
    best = good[0] if good else fresh[0] if fresh else offered[0] if offered else NONE
    judged = "".join(
        f"{offer} = {worth} {target} {'ok' if worth == target else 'bad'} ; " for offer, worth in _printed_last(seen)
    )
    if good or seen.left <= 1 or (fresh and rng.random() < 0.15):
        return f"{judged}final {best}", []
    if "standard_reasoner" not in seen.tools:
        return _tried(rest, rng)
    if fresh:
        return f"{judged}check {' ; '.join(fresh[:4])}", _check(seen, fresh, rng)
    return f"{judged}ask {target}", _ask(seen, rng)


def _printed_last(seen: Seen) -> list[tuple[str, str]]:
    """Expressions that programs of the last round printed, and what they are worth."""
    return _worths(seen.rounds[-1:])


def _worths(rounds: Sequence[tuple[tuple[ToolCall, ...], tuple[Response, ...]]]) -> list[tuple[str, str]]:
    return [
        (part, worth.removesuffix(".0"))
        for calls, responses in rounds
        for call, response in zip(calls, responses, strict=False)
        if call.name == "python" and response.status is CallStatus.OK
        for part, worth in zip(_printed(str(call.arguments["code"])), response.value.split(), strict=False)
    ]


def _tried(rest: str, rng: random.Random) -> Move:
    """Of one who has nobody to ask: it scans for a solution itself, and lets python compute what that is worth."""
    *numbers, _, target = rest.split()
    lines, hit = first_hit([int(number) for number in numbers], int(target), rng.sample(OPERATORS, len(OPERATORS)))
    return (lines, [ToolCall("python", {"code": f"print( {hit})"})]) if hit else (f"final {NONE}", [])


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
            offered += _printed(str(call.arguments["code"]))
        elif call.name == "critical_reviewer":
            for offer, _, word in (part.rpartition(" ") for part in parts):
                checked.setdefault(offer, target if word == "ok" else "bad")
        elif call.name in CALCULATORS:
            offered += [part for part in parts if part not in ("", NONE)]
    return list(dict.fromkeys(offered)), checked


def _printed(code: str) -> list[str]:
    """The expressions of `print( a , b)`."""
    inside = code.strip().removeprefix("print(").strip()
    return [part.strip() for part in inside[:-1].split(",")] if inside.endswith(")") else []


def _check(seen: Seen, fresh: Sequence[str], rng: random.Random) -> list[ToolCall]:
    """Let python or a reviewer look at what was offered; perhaps ask for more at the same time."""
    draw = rng.random()
    calls: list[ToolCall] = []
    if draw < 0.8 or "critical_reviewer" not in seen.tools:
        calls.append(ToolCall("python", {"code": f"print( {' , '.join(fresh[:4])})"}))
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

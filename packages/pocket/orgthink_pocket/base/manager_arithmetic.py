"""The teacher of managers for arithmetic, with or without prices: look up prices, compute, perhaps check, end."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Sequence

from orgthink.grammar.toolcall import ToolCall
from orgthink_pocket.base.manager_view import CALCULATORS, Move, View, call, python
from orgthink_pocket.style import SEPARATOR
from orgthink_pocket.tasks.arithmetic import LARGEST
from orgthink_pocket.tasks.ledger import PRICE, named

_NUMBERS = frozenset(map(str, range(LARGEST + 1)))


def move(view: View, rng: random.Random) -> Move:
    """The next move. Arithmetic without prices needs no look-up."""
    known = {f"{m[1]} {m[2]}": m[3] for _, value in view.ok for m in PRICE.finditer(value)}
    expression, names = view.rest, named(view.rest)
    missing = [name for name in names if name not in known]
    for name in names:
        expression = expression.replace(name, known.get(name, name))
    if missing and view.left > 1:
        return f"look {SEPARATOR.join(missing)}", _look(view, missing, rng)
    candidates = _candidates(view)
    if not candidates:
        thought = f"compute {expression}" if names else "compute"
        return (thought, _compute(view, expression, bool(names), rng)) if view.left > 1 else ("final", [])
    found = f"found {' '.join(candidates)} ;"
    calls: list[ToolCall] = []
    voted = _vote(view, candidates)
    if view.left > 1 and rng.random() > (0.85 if candidates.count(voted) > 1 else 0.55):
        calls = _compute(view, expression, bool(names), rng)[: rng.randint(0, view.most - 1)]
        if "critical_reviewer" in view.tools and (not calls or rng.random() < 0.7):
            calls.insert(0, call(view, "critical_reviewer", rng, f"arithmetic {expression}" if names else None))
    checked = f"check {expression}" if names else "check"
    return (f"{found} {checked}", calls) if calls else (f"{found} final {voted}", [])


def answer(view: View) -> str | None:
    """The number with the most votes; `None` without one."""
    candidates = _candidates(view)
    return _vote(view, candidates) if candidates else None


def _look(view: View, missing: Sequence[str], rng: random.Random) -> list[ToolCall]:
    """Search for missing prices, in one call or several, or through an agent."""
    draw = rng.random()
    joint_call = ToolCall("search", {"query_list": list(missing)})
    if "knowledge_searcher" in view.tools and draw < 0.3:
        calls = [call(view, "knowledge_searcher", rng, None)]
        return [*calls, joint_call][: view.most] if draw < 0.1 else calls
    if draw < 0.5 and len(missing) > 1:
        return [ToolCall("search", {"query_list": [name]}) for name in missing][: view.most]
    return [joint_call]


def _compute(view: View, expression: str, looked_up: bool, rng: random.Random) -> list[ToolCall]:
    """Calls for the value of an expression, by one tool or several. An ensemble knows no prices."""
    subtask = f"arithmetic {expression}" if looked_up else None
    tools = [tool for tool in CALCULATORS if tool in view.tools and not (looked_up and tool == "ensemble_solver")]
    weights = [1.0 if tool != "ensemble_solver" else 0.25 for tool in tools]
    calls: list[ToolCall] = []
    for _ in range(min(view.most, rng.choices((1, 2, 3, 4), (0.4, 0.3, 0.2, 0.1))[0])):
        (tool,) = rng.choices(tools, weights)
        if tool == "python":
            request = python([expression])
        elif tool == "ensemble_solver":
            request = ToolCall("ensemble_solver", {})
        else:
            request = call(view, tool, rng, subtask)
        if request not in calls:
            calls.append(request)
    return calls


def _candidates(view: View) -> list[str]:
    """Numbers that calculators returned."""
    found = [value.strip() for request, value in view.ok if request.name in CALCULATORS]
    return [value for value in found if value in _NUMBERS]


def _vote(view: View, candidates: Sequence[str]) -> str:
    """The number with the most votes: calls that returned it, plus reviews `ok`, minus reviews `bad`."""
    votes = Counter(candidates)
    for verdict in (value for request, value in view.ok if request.name == "critical_reviewer"):
        for number, word in re.findall(r"(\d+) (ok|bad)", verdict):
            if number in votes:
                votes[number] += 1 if word == "ok" else -1
    exact = [value.strip() for request, value in view.ok if request.name in ("python", "code_reasoner")]
    return max(votes, key=lambda number: (votes[number], number in exact))

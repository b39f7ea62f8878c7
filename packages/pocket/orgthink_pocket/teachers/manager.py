"""Lessons of a pocket manager before reinforcement learning: the form of replies, with mostly random decisions.

A reply begins with a thought and ends with calls:

    <reasoning> compute 3 * 17 + 2 </reasoning><tool_call>…</tool_call><tool_call>…</tool_call>

The number of calls, their tools and models, the checks of results, the reaction to failures and the end are random,
but it never gives up. Reinforcement learning teaches which decisions are good.
"""

from __future__ import annotations

import random

from orgthink.grammar.toolcall import ToolCall, render_reply
from orgthink.tools.toolbox import FINAL
from orgthink_pocket.teachers import manager_arithmetic, manager_countdown
from orgthink_pocket.teachers.countdown_review import NO_SOLUTION, answered
from orgthink_pocket.teachers.seen import Seen


def reply(seen: Seen, rng: random.Random) -> str:
    """The next reply."""
    teacher = manager_countdown if seen.kind == "countdown" else manager_arithmetic
    thought, calls = teacher.move(seen, rng)
    return render_reply(f" {thought} ", calls or [ToolCall(FINAL, {})])


def answer(seen: Seen) -> str:
    """The final answer, after the rounds."""
    teacher = manager_countdown if seen.kind == "countdown" else manager_arithmetic
    return f" {answered(teacher.answer(seen) or NO_SOLUTION)}"

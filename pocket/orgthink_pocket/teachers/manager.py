"""What a manager of the pocket world imitates before it learns to orchestrate: the form of replies, with most decisions
left to chance.

A reply begins with what the manager has in mind, and ends with calls:

    <reasoning> compute 3 * 17 + 2 </reasoning><tool_call>…</tool_call><tool_call>…</tool_call>

How many calls it makes, of which tools and which models, whether it checks what came back, and when it ends, is drawn
at random; so is what it does about failures, but for giving up. What pays is for reinforcement learning to find.
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
    way = manager_countdown if seen.kind == "countdown" else manager_arithmetic
    thought, calls = way.move(seen, rng)
    return render_reply(f" {thought} ", calls or [ToolCall(FINAL, {})])


def answer(seen: Seen) -> str:
    """The final answer, after the rounds."""
    way = manager_countdown if seen.kind == "countdown" else manager_arithmetic
    return f" {answered(way.answer(seen) or NO_SOLUTION)}"

"""Grades of a chain's outputs, found beside the event loop: a slow grader holds up no other chain.

What reads outcomes afterwards finds the grades in the cache of the rules. With a sampler that decodes on the loop,
nothing is graded ahead: how long a grader takes would decide what is decoded together, and no run could be repeated.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from orgthink.beside import in_thread
from orgthink.engines.engine import Engine, OnLoop
from orgthink.episode import Problem, Trace
from orgthink.training.marsrl.chain import Rules, last_groups, outputs_of
from orgthink.training.marsrl.streams import STREAMS, last_stage


def grades_beside(sampler: Engine) -> bool:
    """Whether outputs of this sampler are graded beside the event loop."""
    return not (isinstance(sampler, OnLoop) and sampler.on_loop)


async def grade(rules: Rules, problem: Problem, traces: Sequence[Trace], places: Iterable[str]) -> None:
    """Grade what the outcomes of finished outputs depend on, by their places. Raises what the grader raises."""
    outputs, wanted = outputs_of(traces), [place for place in places if place]

    def work() -> None:
        for place in wanted:
            rules.outcome(problem, outputs, place)

    if wanted:
        await in_thread(work)


async def grade_last(rules: Rules, problem: Problem, traces: Sequence[Trace]) -> None:
    """The same of the last stage, where another one follows it."""
    groups = last_groups(traces)
    if groups[0].stream != STREAMS[last_stage(rules.plan.roles)]:
        await grade(rules, problem, traces, [p for group in groups if group.broken is None for p in group.places])

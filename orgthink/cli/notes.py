"""Notes on standard error: what a user should know about a run, one line each."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from orgthink.engines import EngineSpec
from orgthink.evaluation.compatibility import pool_warning
from orgthink.evaluation.plan import Evaluation
from orgthink.evaluation.presets import preset_of
from orgthink.measure.usage import Price
from orgthink.record.episode import Episode, Status
from orgthink.runtime.organization import Organization
from orgthink.tasks import task_named
from orgthink.util.terminal import show


def note(*lines: str | None) -> None:
    """Print the lines that are not empty."""
    for line in filter(None, lines):
        show(f"orgthink: {line}", error=True)


def problems_note(plan: Evaluation) -> str | None:
    """The number of problems, if a benchmark's convention or the size of the task decides it."""
    if plan.wanted is not None:
        return f"{plan.task} has {plan.n} different {plan.split} problems, not {plan.wanted}: all of them are used"
    convention = task_named(plan.task).convention
    expected = None if convention is None else convention.problems or convention.published
    if expected in (None, plan.n):
        return None
    return f"{plan.task}: {plan.n} problems are evaluated, and the published set has {expected}"


def pool_notes(organizations: Iterable[Organization], capacity: int) -> list[str | None]:
    """Organizations whose agents will wait for each other."""
    return [pool_warning(organization, capacity) for organization in organizations]


def question_note(spec: EngineSpec) -> str | None:
    """That a model cannot read a question in the user's words."""
    tasks = preset_of(spec).tasks
    if not tasks:
        return None
    return (
        f"{spec.model} knows only its own tasks ({', '.join(tasks)}), no other question: name a real model with "
        f"--model FOLDER or a server's --url, or take a problem of a task, as in --task {tasks[0]}"
    )


def price_note(models: Iterable[str | None], prices: Mapping[str, Price]) -> str | None:
    """Models without a price, if others have one."""
    unknown = [model for model in dict.fromkeys(models) if model is not None and model not in prices]
    return f"no price of {', '.join(unknown)}: dollars are unknown" if prices and unknown else None


def return_notes(episodes: Iterable[Episode]) -> list[str]:
    """Roles whose every reply ended without what the role returns."""
    ends: defaultdict[str, Counter[Status]] = defaultdict(Counter)
    for trace in (trace for episode in episodes for trace in episode.traces if trace.model is not None):
        ends[trace.role][trace.status] += 1
    return [
        f"{role}: no reply of {found.total()} has what this role returns: its model may not have learned the role"
        for role, found in ends.items()
        if found.keys() == {Status.NO_RETURN} and found.total() > 1
    ]

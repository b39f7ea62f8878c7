"""What a user should know before a run begins, one line each on standard error."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable

from orgthink.engines import EngineSpec
from orgthink.evaluate.compatibility import pool_warning
from orgthink.evaluate.evaluation import Evaluation
from orgthink.evaluate.presets import preset_of, style_here
from orgthink.record.episode import Episode, Status
from orgthink.runtime.organization import Organization
from orgthink.tasks import task_named
from orgthink.util.terminal import show


def note(*lines: str | None) -> None:
    """Print those that there are."""
    for line in filter(None, lines):
        show(f"orgthink: {line}", error=True)


def all_problems(plan: Evaluation) -> str | None:
    """That a task has fewer problems than were asked for."""
    if plan.wanted is None:
        return None
    return f"{plan.task} has {plan.n} different {plan.split} problems, not {plan.wanted}: all of them"


def by_convention(plan: Evaluation, n: int | None, samples: int | None, temperature: float | None) -> str | None:
    """What a benchmark's convention decides, because the user gave nothing, and that rows are missing."""
    convention = task_named(plan.task).convention
    if convention is None:
        return None
    usual = [
        f"{plan.n} problems (--n)" if n is None else "",
        f"avg@{plan.samples} (--samples)" if samples is None else "",
        f"temperature {plan.sampling.temperature:g} (--temperature)" if temperature is None else "",
    ]
    found = [f"by convention {', '.join(filter(None, usual))}"] if any(usual) else []
    expected = convention.problems or convention.published
    if n is None and expected not in (None, plan.n):
        found.append(f"the published set has {expected} problems, and {plan.n} are here")
    return f"{plan.task}: {'; '.join(found)}" if found else None


def pools(organizations: Iterable[Organization], capacity: int) -> list[str | None]:
    """Whose agents will wait for each other."""
    return [pool_warning(organization, capacity) for organization in organizations]


def ignored_server(spec: EngineSpec, model: str | None) -> str | None:
    """That the default model is meant where OPENAI_BASE_URL is set too."""
    server = os.environ.get("OPENAI_BASE_URL")
    if model is not None or spec.url is not None or not server:
        return None
    return f"no --model is named, so {spec.model} is used and not the server of OPENAI_BASE_URL: name its --model"


def only_its_tasks(spec: EngineSpec) -> str | None:
    """That a model cannot read a question in the user's words."""
    tasks = preset_of(spec).tasks
    if not tasks:
        return None
    return (
        f"{spec.model} knows only its own tasks ({', '.join(tasks)}), no other question: name a real model with "
        f"--model FOLDER or a server's --url, or take a problem of a task, as in --task {tasks[0]}"
    )


def never_returned(episodes: Iterable[Episode]) -> list[str]:
    """Roles of models whose every reply ended without what the role returns."""
    ends: defaultdict[str, Counter[Status]] = defaultdict(Counter)
    for trace in (trace for episode in episodes for trace in episode.traces if trace.model is not None):
        ends[trace.role][trace.status] += 1
    return [
        f"{role}: none of {found.total()} replies has what this role returns: its model may not have learned the role"
        for role, found in ends.items()
        if found.keys() == {Status.NO_RETURN} and found.total() > 1
    ]


def unlike_its_style(spec: EngineSpec, organizations: Iterable[Organization]) -> str | None:
    """That a server's model may have been trained with prompts other than the ones that it gets."""
    style = style_here(spec)
    if style is None or style in (used := {getattr(one, "prompts", style) for one in organizations}):
        return None
    return f"{spec.model} lies here with prompt style {style} and gets {', '.join(used)}: say --prompts {style}"

"""Rejection sampling: the pairs of a model's own episodes that are right and without format errors.

The prompts of the pairs are written again as text, since the record has them as the chat template of the model spells
them.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from orgthink.record.episode import Episode
from orgthink.record.folder import RunFolder
from orgthink.training.coldstart import pairs
from orgthink.training.coldstart.lesson import lesson
from orgthink.training.coldstart.synthesis import ROWS
from orgthink.training.coldstart.trajectories import organizations_in
from orgthink.util.errors import UserError


def imitate(run: RunFolder, path: Path) -> tuple[int, int, int]:
    """Write the pairs of a run's successful episodes into a new folder. Returns the numbers of pairs, of successful
    episodes and of all. UserError without any, or if they have several styles or capacities."""
    specs, total = organizations_in(run), 0
    found: list[tuple[str, Episode]] = []
    for episode in run.episodes():
        total += 1
        spec = specs.get(episode.organization)
        style = str(spec.settings.get("prompts", "paper")) if spec is not None else ""
        if spec is not None and is_success(episode) and (again := _lesson(episode, style)) is not None:
            found.append((style, again))
    kinds = {(style, episode.capacity) for style, episode in found}
    if len(kinds) != 1:
        trouble = "several prompt styles or capacities" if kinds else "no right episode of asyncthink by tags"
        raise UserError(f"{run.path} has {trouble}: nothing to imitate")
    (style, capacity), rows = kinds.pop(), [row for _, one in found for row in pairs.pairs_of(one, "itself")]
    source = {"episodes": str(run.path.resolve()), "prompts": style, "capacity": capacity}
    pairs.write(RunFolder.create(path, "synth", source).path / ROWS, rows)
    return len(rows), len(found), total


def is_success(episode: Episode) -> bool:
    """Whether an organizer's episode is all correct and has no format error."""
    right = episode.grade is not None and episode.grade.all_correct
    return right and not episode.format_faults and episode.root.role == "organizer"


def _lesson(episode: Episode, style: str) -> Episode | None:
    """The episode with its prompts as text; `None` if these differ from the prompts that its agents saw."""
    agents = {trace.agent: trace for trace in episode.traces}
    workers = [agents[edge.child] for edge in episode.root.forks]
    texts = [worker.text for worker in workers]
    try:
        again = lesson(episode.problem, episode.capacity, style, episode.root.text, texts, episode.organization)
    except ValueError:
        return None
    seen = zip(again.traces, (episode.root, *workers), strict=True)
    same = all(one.spans[0].text in other.spans[0].text and one.text == other.text for one, other in seen)
    return replace(again, id=episode.id) if same else None

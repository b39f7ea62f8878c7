"""A teacher's texts for an organizer and its workers, as the episode that the runtime would have recorded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from orgthink.grammar.actions import Fork
from orgthink.grammar.asyncthink import reading
from orgthink.measure.text import episode_of_text, returned_by, words
from orgthink.organizations.prompts import prompt
from orgthink.record.episode import Episode, Origin, Problem, Span, Trace, episode_id


def lesson(
    problem: Problem, capacity: int, style: str, organizer: str, workers: Sequence[str], teacher: str
) -> Episode:
    """The episode of an organizer's context and its workers' texts. `workers` are in the order of the forks.

    One word counts as one decoding step. `style` is the prompt style of the student. ValueError if the numbers of
    workers and forks differ.
    """
    texts: dict[str, list[str]] = defaultdict(list)
    forks: list[Fork] = []
    for part in reading(organizer, lambda key: returned_by(texts[key][-1]) if texts[key] else None):
        if isinstance(part, Fork) and len(forks) < len(workers):
            texts[part.key].append(workers[len(forks)])
        forks += [part] if isinstance(part, Fork) else []
    if len(forks) != len(workers):
        raise ValueError(f"{len(forks)} forks and {len(workers)} workers: each fork has one")
    episode = episode_of_text({"capacity": capacity, "organizer": organizer, "workers": dict(texts)})
    root, *others = episode.traces
    prompts = [prompt(style, "worker", problem, capacity=capacity, query=fork.query.strip()) for fork in forks]
    traces = [
        _prompted(root, prompt(style, "organizer", problem, capacity=capacity)[0].content),
        *(_prompted(trace, messages[0].content) for trace, messages in zip(others, prompts, strict=True)),
    ]
    identity = episode_id(problem, teacher, 0)
    return replace(episode, id=identity, problem=problem, organization=teacher, traces=tuple(traces))


def _prompted(trace: Trace, prompt_text: str) -> Trace:
    return replace(trace, spans=(Span(Origin.PROMPT, prompt_text, words(prompt_text)), *trace.spans))

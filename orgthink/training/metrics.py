"""Metrics of a step's episodes, as means, for metrics.jsonl."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

from orgthink.measure.accuracy import all_correct
from orgthink.measure.latency import concurrency, critical_path
from orgthink.measure.orchestration import (
    calls_per_round,
    cost,
    managed,
    models,
    rounds,
    statuses,
    tools,
    trajectory_tokens,
    unique_tools,
)
from orgthink.measure.summary import has_format_error
from orgthink.measure.usage import forks, sampled_tokens
from orgthink.record.episode import Episode, FormatError
from orgthink.training.scores import Parts

OUTCOME = {"reward": "reward {:.3f}", "best_fitness": "best {:.3f}", "all_correct": "all correct {:.0%}"}
"""Formats of metrics in the progress line: outcomes come first."""
STRUCTURE = {
    "rounds": "rounds {:.1f}",
    "calls_per_round": "calls a round {:.2f}",
    "cost_units": "cost {:.1f}",
    "concurrency_pool": "η {:.2f}",
    "critical_path_steps": "path {:.0f}",
}
"""Formats of the metrics of managers and of latency, which come last."""


def rollout_metrics(episodes: Sequence[Episode], rewards: Mapping[str, Parts]) -> dict[str, Any]:
    """Means over episodes. `rewards` are by episode id.

    If a manager led some of the episodes, its metrics are added.
    """
    faults = [{fault.kind for fault in episode.format_faults} for episode in episodes]
    names = dict.fromkeys(["reward", *chain(*rewards.values())])
    led = [episode for episode in episodes if managed(episode)]
    return {
        **{name: mean(score[name] for score in rewards.values()) for name in names},
        "all_correct": mean(map(all_correct, episodes)),
        "format_error_rate": mean(map(has_format_error, episodes)),
        "format_errors": {kind.value: mean(kind in kinds for kinds in faults) for kind in FormatError},
        "concurrency_pool": mean(map(concurrency, episodes)),
        "critical_path_steps": mean(map(critical_path, episodes)),
        "forks": mean(map(forks, episodes)),
        "sampled_tokens": mean(map(sampled_tokens, episodes)),
        **(_orchestration(led) if led else {}),
    }


def _orchestration(episodes: Sequence[Episode]) -> dict[str, Any]:
    """Metrics of managers. The shares are shares of all their calls."""

    def shares(count: Callable[[Episode], Counter[Any]]) -> dict[str, float]:
        counted = sum(map(count, episodes), Counter())
        return {str(name): number / counted.total() for name, number in sorted(counted.items())}

    return {
        "rounds": mean(len(rounds(episode)) for episode in episodes),
        "calls_per_round": mean(map(calls_per_round, episodes)),
        "unique_tools": mean(map(unique_tools, episodes)),
        "cost_units": mean(map(cost, episodes)),
        "context_tokens": mean(map(trajectory_tokens, episodes)),
        "tool_shares": shares(tools),
        "model_shares": shares(models),
        "status_shares": shares(statuses),
    }


def mean(values: Iterable[float | None]) -> float | None:
    """Mean of the values that are not `None`; `None` without any."""
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None  # exact, so independent of the order

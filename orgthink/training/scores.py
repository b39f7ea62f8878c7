"""Check the scores and advantages that plug-ins return, and convert them to plain numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from orgthink.credit import AgentWork, EpisodeCredit
from orgthink.record.episode import Episode
from orgthink.rewards import Score
from orgthink.util.errors import UserError
from orgthink.util.terminal import excerpt, reason

Groups = Mapping[str, Mapping[str, float]]
"""Group → attempt → reward."""
Works = Mapping[str, Mapping[str, Mapping[str, AgentWork]]]
"""Group → episode → agent → work."""


@dataclass(frozen=True, slots=True)
class PlainScore(Score):
    """A score of plain numbers."""

    made_of: Mapping[str, Any] = field(default_factory=dict)
    """Its parts."""
    agents: Mapping[str, float] = field(default_factory=dict)
    """Rewards of single agents."""

    def parts(self) -> dict[str, Any]:
        return dict(self.made_of)

    def of_agents(self) -> Mapping[str, float]:
        return self.agents


def score_of(reward: Callable[[Episode], Score], episode: Episode) -> Score:
    """The score of an episode. UserError if the reward returns anything else; its own errors are raised."""
    where = f"the reward {_name(reward)} of episode {episode.id}"
    score = reward(episode)
    if not isinstance(score, Score):
        raise UserError(f"{where} is {_quoted(score)}: it must be an orgthink.rewards.Score")
    _require_names(score.of_agents(), (trace.agent for trace in episode.traces), where, "agent")
    parts = {name: None if each is None else number(each, f"{name} of {where}") for name, each in score.parts().items()}
    agents = {name: number(each, f"{where}, {name},") for name, each in score.of_agents().items()}
    return PlainScore(number(score.total, where), parts, agents)


def advantages_of(
    credit: EpisodeCredit, groups: Groups, works: Works | None, crash: Callable[[str, Exception], str] | None = None
) -> Mapping[str, float | Mapping[str, float]]:
    """Advantage of each episode that is trained on, or of each agent if the credit distinguishes agents (`works`).

    UserError if the credit returns anything else or fails; `crash` stores the traceback. Its ValueErrors are raised.
    """
    where = f"the credit {_name(credit)}"
    try:
        own = None if works is None else credit.of_agents(works)
        found = credit(groups) if own is None else own
    except ValueError:
        raise
    except Exception as bug:
        what = crash(where, bug) if crash else f"{type(bug).__name__}: {reason(bug)}"
        raise UserError(f"{where} failed: {what}") from bug
    _require_names(found, (episode for group in groups.values() for episode in group), where, "episode")
    if own is None:
        return {name: number(value, f"{where} of {name}") for name, value in found.items()}
    agents = {episode: each for group in (works or {}).values() for episode, each in group.items()}
    for episode, each in own.items():
        _require_names(each, agents[episode], f"{where} of {episode}", "agent")
    return {e: {a: number(value, f"{where} of {e}, {a},") for a, value in each.items()} for e, each in own.items()}


def number(value: Any, where: str) -> float:
    """A plug-in's number as a float, also from numpy or torch. UserError if it is not a finite number."""
    try:
        found = math.nan if value is None or isinstance(value, str | bytes) else float(value)
    except Exception:
        found = math.nan
    if not math.isfinite(found):
        raise UserError(f"{where} is {_quoted(value)}: it must be a number")
    return found


def check_of(message: str | None) -> str:
    """Advice for a failure. A bug names its own place."""
    return "" if "(a bug:" in (message or "") else ": check the sampler"


def _require_names(found: Any, known: Iterable[str], where: str, kind: str) -> None:
    if not isinstance(found, Mapping):
        raise UserError(f"{where} is {_quoted(found)}: it must be a mapping from {kind}s to numbers")
    for name in found.keys() - set(known):
        raise UserError(f"{where} names {_quoted(name)}, which is not an {kind} there")


def _name(plugin: object) -> str:
    return getattr(plugin, "__name__", type(plugin).__name__)


def _quoted(value: object) -> str:
    return f"{excerpt(repr(value), 60)} ({type(value).__name__})"

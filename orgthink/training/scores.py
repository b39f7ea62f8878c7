"""Where numbers of plug-ins enter a training: what a reward or a credit returns is checked and made plain numbers."""

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
"""Group → attempt → its reward."""
Works = Mapping[str, Mapping[str, Mapping[str, AgentWork]]]
"""Group → episode → agent → its work."""


@dataclass(frozen=True, slots=True)
class PlainScore(Score):
    """A score in plain numbers, which files take."""

    made_of: Mapping[str, Any] = field(default_factory=dict)
    """Its parts."""
    agents: Mapping[str, float] = field(default_factory=dict)
    """What single agents earned."""

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
    total = number(score.total, where)
    parts, agents = score.parts(), score.of_agents()
    known = {trace.agent for trace in episode.traces}
    for agent in agents:
        if agent not in known:
            raise UserError(f"{where} names {_quoted(agent)}, and no agent there has that name")
    parts = {name: None if each is None else number(each, f"{name} of {where}") for name, each in parts.items()}
    return PlainScore(total, parts, {name: number(each, f"{where}, {name},") for name, each in agents.items()})


def advantages_of(
    credit: EpisodeCredit, groups: Groups, works: Works | None, crash: Callable[[str, Exception], str] | None = None
) -> Mapping[str, float | Mapping[str, float]]:
    """Advantage of each episode that is trained on or, with `works` where the credit tells agents apart, of each agent.

    UserError if the credit returns anything else, or fails; `crash` stores the traceback. Its ValueErrors are raised.
    """
    where = f"the credit {_name(credit)}"
    try:
        own = None if works is None else credit.of_agents(works)
        found = credit(groups) if own is None else own
    except ValueError:
        raise
    except Exception as bug:
        raise UserError(f"{where} failed: {crash(where, bug) if crash else _what(bug)}") from bug
    known = {episode for group in groups.values() for episode in group}
    _require_names(found, known, where, "episode")
    if own is None:
        return {name: number(value, f"{where} of {name}") for name, value in found.items()}
    agents = {episode: each for group in (works or {}).values() for episode, each in group.items()}
    for episode, each in own.items():
        _require_names(each, agents[episode], f"{where} of {episode}", "agent")
    return {e: {a: number(value, f"{where} of {e}, {a},") for a, value in each.items()} for e, each in own.items()}


def number(value: Any, where: str) -> float:
    """A number of a plug-in, also of numpy or torch. UserError for what is none."""
    try:
        found = math.nan if value is None or isinstance(value, str | bytes) else float(value)
    except Exception:
        found = math.nan
    if not math.isfinite(found):
        raise UserError(f"{where} is {_quoted(value)}: it must be a number")
    return found


def _require_names(found: Any, known: Iterable[str], where: str, kind: str) -> None:
    if not isinstance(found, Mapping):
        raise UserError(f"{where} is {_quoted(found)}: it must be a mapping from {kind}s to numbers")
    for name in found.keys() - set(known):
        raise UserError(f"{where} names {_quoted(name)}, and no {kind} there has that name")


def _name(plugin: object) -> str:
    return getattr(plugin, "__name__", type(plugin).__name__)


def _quoted(value: object) -> str:
    return f"{excerpt(repr(value), 60)} ({type(value).__name__})"


def _what(bug: Exception) -> str:
    return f"{type(bug).__name__}: {reason(bug)}"

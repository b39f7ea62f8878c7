"""Check the scores and advantages that plug-ins return, and convert them to plain numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from orgthink.credit import EpisodeCredit
from orgthink.record.episode import Episode
from orgthink.rewards import Score
from orgthink.util.errors import UserError
from orgthink.util.terminal import excerpt, reason

Groups = Mapping[str, Mapping[str, float]]
"""Group → attempt → reward."""


Parts = Mapping[str, Any]
"""The score of an episode in plain numbers: `reward` is R, the others its parts, `None` if unknown."""


def score_of(reward: Callable[[Episode], Score], episode: Episode) -> Parts:
    """The score of an episode. UserError if the reward returns anything else; its own errors are raised."""
    where = f"the reward {_name(reward)} of episode {episode.id}"
    score = reward(episode)
    if not isinstance(score, Score):
        raise UserError(f"{where} is {_quoted(score)}: it must be an orgthink.rewards.Score")
    parts = {name: None if each is None else number(each, f"{name} of {where}") for name, each in score.parts().items()}
    return {**parts, "reward": number(score.total, where)}


def advantages_of(
    credit: EpisodeCredit, groups: Groups, crash: Callable[[str, Exception], str] | None = None
) -> dict[str, float]:
    """Advantage of each episode that is trained on.

    UserError if the credit returns anything else or fails; `crash` stores the traceback. Its ValueErrors are raised.
    """
    where = f"the credit {_name(credit)}"
    try:
        found = credit(groups)
    except ValueError:
        raise
    except Exception as bug:
        what = crash(where, bug) if crash else f"{type(bug).__name__}: {reason(bug)}"
        raise UserError(f"{where} failed: {what}") from bug
    if not isinstance(found, Mapping):
        raise UserError(f"{where} is {_quoted(found)}: it must be a mapping from episodes to numbers")
    for name in found.keys() - {episode for group in groups.values() for episode in group}:
        raise UserError(f"{where} names {_quoted(name)}, which is not an episode there")
    return {name: number(value, f"{where} of {name}") for name, value in found.items()}


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


def _name(plugin: object) -> str:
    return getattr(plugin, "__name__", type(plugin).__name__)


def _quoted(value: object) -> str:
    return f"{excerpt(repr(value), 60)} ({type(value).__name__})"

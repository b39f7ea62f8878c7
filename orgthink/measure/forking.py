"""Whether, and how early, models fork: the share of episodes with a fork, on each task of a mixture."""

from __future__ import annotations

from itertools import takewhile

from orgthink.grammar.actions import Fork, Think
from orgthink.grammar.asyncthink import read
from orgthink.measure.usage import forks
from orgthink.record.episode import Episode, Origin


def forked(episode: Episode) -> bool:
    """Whether a model forked; forks of an organization's own code do not count."""
    return forks(episode) > 0


def forks_before_thought(episode: Episode) -> int | None:
    """Forks of the root before it wrote anything else; `None` without a model, or if it forks by no tags.

    Tags are those of AsyncThink's paper. Forks that were refused as format errors are not counted.
    """
    if episode.root.model is None:
        return None
    spans = takewhile(lambda span: span.origin is not Origin.INJECTED, episode.root.spans)
    actions = [
        action for action in read("".join(span.text for span in spans if span.origin.own)) if not _is_blank(action)
    ]
    if episode.root.forks and not any(isinstance(action, Fork) for action in actions):
        return None
    return min(len(episode.root.forks), len(list(takewhile(lambda action: isinstance(action, Fork), actions))))


def _is_blank(action: object) -> bool:
    return isinstance(action, Think) and not action.text.strip()

"""Streams without an end, and servers that count wrongly: every budget and every bound holds on our side."""

from __future__ import annotations

from pathlib import Path

from attacks.catalogue import Attack, each
from attacks.hostile import ATTACKED, FINE, evaluated, planned
from loopback import Exchange, babbles, says

from orgthink.episode import Episode, StopReason
from orgthink.runtime.budget import Budget, Limits

COUNTED = (
    "What was seen to arrive is counted here; the server's word corrects it only upward, up to what was asked for."
)


def steps(episode: Episode) -> int:
    return sum(trace.steps for trace in episode.traces)


@each(
    Attack("usage of no tokens for three that were seen", COUNTED, "three tokens", (0, 3)),
    Attack("usage of one token for three that were seen", COUNTED, "three tokens", (1, 3)),
    Attack("usage of 2³¹−1 tokens of 50", COUNTED, "fifty tokens", (2**31 - 1, 50)),
    Attack("usage of seven tokens in three events", COUNTED, "seven tokens", (7, 7)),
)
async def test_counts(attack: Attack, tmp_path: Path) -> None:
    usage, counted = attack.given
    lying = says("so <ANSWER> 3", usage=usage)
    episodes = await evaluated(tmp_path / "run", (ATTACKED, lying), FINE, FINE)
    assert steps(episodes[ATTACKED]) == counted


async def loops(exchange: Exchange) -> None:
    """Fork, join, and so on without an end; each answer is said to be one token."""
    await says("so <FORK-1> a </FORK-1> <JOIN-1>", usage=1)(exchange)


@each(Attack("every answer is said to be one token", COUNTED, "the budget of the episode ends it"))
async def test_a_budget_holds(attack: Attack, tmp_path: Path) -> None:
    what = planned("asyncthink", limits=Limits(2, Budget(tokens=40)))
    episodes = await evaluated(tmp_path / "run", *[loops] * 200, what=what)
    assert all(40 <= steps(episode) < 60 for episode in episodes.values())


BOUNDED = "`max_tokens` holds on our side: an agent gets no more pieces than it asked for tokens."


@each(Attack("words without an end, whatever `max_tokens` is", BOUNDED, "the agent ends at its limit"))
async def test_max_tokens(attack: Attack, tmp_path: Path) -> None:
    episodes = await evaluated(tmp_path / "run", (ATTACKED, babbles()), FINE, FINE)
    episode = episodes[ATTACKED]
    assert (episode.root.stop, steps(episode)) == (StopReason.LENGTH, 50)

"""What each way of dividing six countdowns is worth, by the teacher's texts: its critical path, and the reward for it.

python -m experiments.asyncthink.evidence.structures
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from statistics import fmean

from orgthink_pocket.base.family import Structures, organizer, sequential
from orgthink_pocket.base.lessons import FAMILIES, NAMED
from orgthink_pocket.base.recipes import THRESHOLD
from orgthink_pocket.tasks.countdown_several import COUNTDOWN_MINI_SIX

from orgthink.arena.tables import table
from orgthink.coldstart.structures import Step, random_structure
from orgthink.episode import Episode, Origin, Problem
from orgthink.measure.latency import critical_path
from orgthink.measure.text import episode_of_text
from orgthink.rewards.asyncthink import concurrency_reward

CAPACITY = 8
"""c of the arena `six`."""
PROBLEMS = 60
"""Training problems."""


def forked(size: int, own: int = 0) -> Structures:
    """Forks of so many countdowns each, all before the first Join; the organizer takes the last `own` ones itself."""

    def draw(rng: random.Random, parts: Sequence[str], capacity: int) -> list[Step]:
        given = parts[: len(parts) - own]
        forks = [Step("fork", str(1 + i // size), tuple(given[i : i + size])) for i in range(0, len(given), size)]
        thinking = [Step("think", parts=tuple(parts[len(given) :]))] if own else []
        return [*forks, *thinking, *(Step("join", fork.key) for fork in forks)]

    return draw


DIVISIONS: Mapping[str, Structures] = {
    "at random, as in the lessons": random_structure,
    "three forks of two": forked(2),
    "five forks of one, one for itself": forked(1, own=1),
    "six forks of one": forked(1),
}
"""Ways to divide six countdowns."""


def taught(problem: Problem, draw: Structures, seed: int) -> Episode:
    """The teacher's episode, with words as decoding steps."""
    lead, *workers = organizer(FAMILIES[NAMED], problem, CAPACITY, random.Random(seed), draw)
    texts: dict[str, list[str]] = {}
    for key, worker in zip(_keys(lead.text), workers, strict=True):
        texts.setdefault(key, []).append(worker.text)
    return episode_of_text({"capacity": CAPACITY, "organizer": lead.text, "workers": texts})


def _keys(text: str) -> list[str]:
    """Keys of the Forks of an organizer's text, in order."""
    return [part.partition(">")[0] for part in text.split("<FORK-")[1:]]


def divided(problems: Sequence[Problem]) -> str:
    """A table of the divisions."""
    alone = fmean(
        sum(span.tokens for span in sequential(FAMILIES[NAMED], problem).spans if span.origin is Origin.SAMPLED)
        for problem in problems
    )
    rows: list[dict[str, str]] = []
    for name, draw in DIVISIONS.items():
        episodes = [taught(problem, draw, seed) for seed, problem in enumerate(problems)]
        path = fmean(map(critical_path, episodes))
        reward = fmean(concurrency_reward(episode, THRESHOLD) for episode in episodes)
        numbers = {"critical path (steps)": f"{path:.0f}", "÷ one thinker's": f"{path / alone:.2f}"}
        rows.append({"division": name, **numbers, "R_η": f"{reward:.3f}"})
    return table(rows, [(title, lambda row, title=title: row[title]) for title in rows[0]])


def main() -> None:
    stream = COUNTDOWN_MINI_SIX.problems("train", 0)
    print(divided([next(stream) for _ in range(PROBLEMS)]))


if __name__ == "__main__":
    main()

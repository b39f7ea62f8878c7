"""What forks are worth, by the teacher's texts: on six countdowns, and on values of which each needs the one before.

python -m experiments.asyncthink.evidence.structures
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from statistics import fmean

from orgthink_pocket.base.family import Structures, organizer, sequential
from orgthink_pocket.base.lessons import FAMILIES, NAMED, PARTS
from orgthink_pocket.base.recipes import THRESHOLD
from orgthink_pocket.tasks.countdown_several import COUNTDOWN_MINI_SIX
from orgthink_pocket.tasks.parts import PARTS_MINI_CHAINED

from orgthink.arena.tables import table
from orgthink.coldstart.structures import Step, random_structure
from orgthink.episode import Episode, Origin, Problem
from orgthink.measure.latency import critical_path
from orgthink.measure.text import episode_of_text
from orgthink.rewards.asyncthink import concurrency_reward, path_reward

CAPACITY = 8
"""c of the arena `six`."""
PROBLEMS = 60
"""Training problems."""
CHAIN_CAPACITY, CHAIN_PATH = 4, 320
"""c of the arena `chains`; steps from which a chain earns nothing by R_L."""
CHAINS = 300
"""Training problems whose values depend on each other."""


def forked(size: int, own: int = 0) -> Structures:
    """Forks of so many countdowns each, all before the first Join; the organizer takes the last `own` ones itself."""

    def draw(rng: random.Random, parts: Sequence[str], capacity: int, *, needs: Mapping[str, str]) -> list[Step]:
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


def taught(problem: Problem, draw: Structures, seed: int, family: str = NAMED, capacity: int = CAPACITY) -> Episode:
    """The teacher's episode, with words as decoding steps."""
    lead, *workers = organizer(FAMILIES[family], problem, capacity, random.Random(seed), draw)
    texts: dict[str, list[str]] = {}
    for key, worker in zip(_keys(lead.text), workers, strict=True):
        texts.setdefault(key, []).append(worker.text)
    episode = episode_of_text({"capacity": capacity, "organizer": lead.text, "workers": texts})
    return replace(episode, problem=problem)


def _keys(text: str) -> list[str]:
    """Keys of the Forks of an organizer's text, in order."""
    return [part.partition(">")[0] for part in text.split("<FORK-")[1:]]


def thinker_path(problem: Problem, family: str = NAMED) -> int:
    """Steps of the teacher's text of one thinker."""
    return sum(span.tokens for span in sequential(FAMILIES[family], problem).spans if span.origin is Origin.SAMPLED)


def divided(problems: Sequence[Problem]) -> str:
    """A table of the divisions."""
    alone = fmean(thinker_path(problem) for problem in problems)
    rows: list[dict[str, str]] = []
    for name, draw in DIVISIONS.items():
        episodes = [taught(problem, draw, seed) for seed, problem in enumerate(problems)]
        path = fmean(map(critical_path, episodes))
        reward = fmean(concurrency_reward(episode, THRESHOLD) for episode in episodes)
        numbers = {"critical path (steps)": f"{path:.0f}", "÷ one thinker's": f"{path / alone:.2f}"}
        rows.append({"division": name, **numbers, "R_η": f"{reward:.3f}"})
    return titled(rows)


def chained(problems: Sequence[Problem]) -> str:
    """A table of chains, by the number of forks: what each reading of Eq. 1 pays for them, and what R_L pays."""
    by_forks: dict[int, list[Episode]] = {}
    for seed, problem in enumerate(problems):
        episode = taught(problem, random_structure, seed, PARTS, CHAIN_CAPACITY)
        by_forks.setdefault(len(episode.root.forks), []).append(episode)
    columns: list[tuple[str, Callable[[Episode], float], int]] = [
        ("critical path (steps)", critical_path, 0),
        ("÷ one thinker's", lambda episode: critical_path(episode) / thinker_path(episode.problem, PARTS), 2),
        ("R_η, Eq. 1 as printed", lambda episode: concurrency_reward(episode, THRESHOLD), 3),
        ("R_η, organizer counted", lambda episode: concurrency_reward(episode, THRESHOLD, "joined"), 3),
        (f"1 − path / {CHAIN_PATH}", lambda episode: path_reward(episode, CHAIN_PATH), 3),
    ]
    rows = [
        {"forks": str(number), "chains": str(len(episodes))}
        | {title: f"{fmean(map(measure, episodes)):.{digits}f}" for title, measure, digits in columns}
        for number, episodes in sorted(by_forks.items())
    ]
    return titled(rows)


def titled(rows: Sequence[Mapping[str, str]]) -> str:
    """A table whose columns are the keys of its rows."""
    return table(rows, [(title, lambda row, title=title: row[title]) for title in rows[0]])


def main() -> None:
    print(divided(list(islice(COUNTDOWN_MINI_SIX.problems("train", 0), PROBLEMS))))
    print(f"\n{chained(list(islice(PARTS_MINI_CHAINED.problems('train', 0), CHAINS)))}")


if __name__ == "__main__":
    main()

"""Countdowns that may need each other, by the number of their chains: who is right, on what path, and who forks.

    python -m experiments.asyncthink.evidence.links

writes the tables of the page: what was measured, and what the teacher's texts would need if each chain is forked, or
if the organizer keeps one for itself.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any

from orgthink_pocket.base.family import Structures
from orgthink_pocket.base.lessons import LINKED
from orgthink_pocket.tasks.countdown_linked import COUNTDOWN_MINI_LINKED

from experiments.asyncthink.evidence.divisions import division
from experiments.asyncthink.evidence.structures import taught as lesson
from experiments.asyncthink.evidence.structures import thinker_path, titled
from experiments.shared.estimates import as_json, crossed_ratio
from experiments.shared.readme import fill, interval
from experiments.shared.recorded import episodes_of, is_recorded
from orgthink.arena.config import Arena, read_arena
from orgthink.coldstart.structures import Step, consistent_structure
from orgthink.episode import Episode
from orgthink.files import write_whole
from orgthink.measure.crossed import Cells, crossed_average, crossed_difference, crossed_proportion
from orgthink.measure.forking import forked
from orgthink.measure.latency import critical_path
from orgthink.tabular import json_object

HOME = Path(__file__).parent / "linked"
"""Folder of the arena."""
KINDS: Mapping[str, tuple[int, ...]] = {
    "1": (1,),
    "2": (2,),
    "3": (3,),
    "6": (6,),
    "2 and 3": (2, 3),
    "divisible": (2, 3, 6),
}
"""Name of a kind → its numbers of chains."""
Values = Mapping[str, Sequence[tuple[str, int, float]]]
"""Measure → (problem, seed, value) of every attempt."""
PAIRS = (
    ("asyncthink-sampled", "untrained-sampled"),
    ("alone", "alone-untrained"),
    ("paid-for-concurrency", "untrained"),
)
"""Methods that are compared with each other, not with the reference: after and before reinforcement learning."""
MOST = 4
"""Shapes in the table."""
PROBLEMS = 400
"""Training problems of the table."""


def by_kind(runs: Path, arena: Arena) -> dict[str, Any] | None:
    """Kind → method → `right`, `path`, `forked`, `joined` and `divides`; `forked_by_seed` and `joined_by_seed`; and the
    reference beside it, as `_compared` has it. `pairs`: two other methods → kind → the first beside the second. `None`
    if the reference is not recorded.

    Of the reference there are the shapes of its divisions, too, and how many of its episodes have each.
    """
    found = [name for name in arena.methods if is_recorded(runs, arena, name)]
    if arena.reference not in found:
        return None
    values = {name: _values(runs, arena, name) for name in found}

    def of(name: str, kind: str) -> Values:
        return {measure: _of(values[name], measure, KINDS[kind]) for measure in values[name]}

    kinds = {
        kind: {name: _numbers(of(name, kind)) | _compared(of(arena.reference, kind), of(name, kind)) for name in found}
        for kind in KINDS
    }
    pairs = {
        f"{first} / {second}": {kind: _compared(of(first, kind), of(second, kind)) for kind in KINDS}
        for first, second in PAIRS
        if {first, second} <= set(found)
    }
    return as_json(kinds) | {"pairs": as_json(pairs), "shapes": _shapes(runs, arena)}


def _values(runs: Path, arena: Arena, method: str) -> Values:
    measures: dict[str, Callable[[Episode], float]] = {
        "chains": lambda episode: episode.problem.data["chains"],
        "right": lambda episode: float(_is_right(episode)),
        "path": critical_path,
        "forked": lambda episode: float(forked(episode)),
        "joined": lambda episode: float(division(episode).joined),
        "divides": lambda episode: float(_is_right(episode) and division(episode).divides),
    }
    episodes = [(episode, seed) for seed in arena.seeds for episode in episodes_of(runs, method, seed)]
    return {
        name: [(episode.problem.id, seed, measure(episode)) for episode, seed in episodes]
        for name, measure in measures.items()
    }


def _shapes(runs: Path, arena: Arena) -> dict[str, dict[str, int]]:
    """Number of chains → shape → episodes, the most frequent ones first."""
    found: dict[str, Counter[str]] = {}
    for episode in (episode for seed in arena.seeds for episode in episodes_of(runs, arena.reference, seed)):
        found.setdefault(str(episode.problem.data["chains"]), Counter())[division(episode).shape] += 1
    return {kind: dict(shapes.most_common()) for kind, shapes in sorted(found.items())}


def _is_right(episode: Episode) -> bool:
    return episode.grade is not None and episode.grade.all_correct


def _numbers(mine: Values) -> dict[str, Any]:
    return {
        "right": crossed_proportion(mine["right"]),
        "path": crossed_average(mine["path"]),
        "forked": crossed_proportion(mine["forked"]),
        "joined": crossed_proportion(mine["joined"]),
        "divides": crossed_proportion(mine["divides"]),
        "forked_by_seed": _by_seed(mine["forked"]),
        "joined_by_seed": _by_seed(mine["joined"]),
    }


def _compared(first: Values, second: Values) -> dict[str, Any]:
    """Gaps are first - second, ratios first ÷ second, on the same problems and seeds; `path_ratio_right` on problems
    that both have right in every training.
    """
    both = _right_in_all(first["right"]) & _right_in_all(second["right"])
    paths = [[cell for cell in values["path"] if cell[0] in both] for values in (first, second)]
    return {
        "right_gap": crossed_difference(first["right"], second["right"]),
        "forked_gap": crossed_difference(first["forked"], second["forked"]),
        "divides_gap": crossed_difference(first["divides"], second["divides"]),
        "path_ratio": crossed_ratio(first["path"], second["path"]),
        "path_ratio_right": crossed_ratio(*paths) if both else None,
    }


def _right_in_all(cells: Cells) -> set[str]:
    """Problems without a wrong answer."""
    values = list(cells)
    return {problem for problem, *_ in values} - {problem for problem, _, right in values if not right}


def _by_seed(cells: Sequence[tuple[str, int, float]]) -> list[float]:
    """The mean of each training."""
    seeds = sorted({seed for _, seed, _ in cells})
    return [fmean(value for _, seed, value in cells if seed == one) for one in seeds]


def _of(values: Values, name: str, chains: Sequence[int]) -> Cells:
    """The values of problems with so many chains."""
    kinds = {problem: number for problem, _, number in values["chains"]}
    return [cell for cell in values[name] if kinds[cell[0]] in chains]


def by_chains(*, keeps: bool) -> Structures:
    """Forks of a chain each; the organizer takes one for itself if it `keeps` one."""

    def draw(rng: random.Random, parts: Sequence[str], capacity: int, *, needs: Mapping[str, str]) -> list[Step]:
        following = {needed: part for part, needed in needs.items()}
        chains = [_from(part, following) for part in parts if part not in needs]
        given, own = (chains[:-1], chains[-1]) if keeps else (chains, ())
        forks = [Step("fork", str(key), chain) for key, chain in enumerate(given, 1)]
        thinking = [Step("think", parts=(part,)) for part in own]
        return [*forks, *thinking, *(Step("join", fork.key) for fork in forks)]

    return draw


def _from(part: str, following: Mapping[str, str]) -> tuple[str, ...]:
    """A part and those of its chain that come after it."""
    return (part, *(_from(following[part], following) if part in following else ()))


def taught() -> str:
    """A table of the teacher's critical paths, and of how often a random structure of the lessons divides."""
    problems = list(islice(COUNTDOWN_MINI_LINKED.problems("train", 0), PROBLEMS))
    random_ones = ((problem, lesson(problem, consistent_structure, i, LINKED)) for i, problem in enumerate(problems))
    by_chance = {problem.id: division(episode).divides for problem, episode in random_ones}
    rows: list[dict[str, str]] = []
    for name, chains in KINDS.items():
        some = [problem for problem in problems if problem.data["chains"] in chains]
        alone = fmean(thinker_path(problem, LINKED) for problem in some)
        row = {"chains": name, "one thinker (steps)": f"{alone:.0f}"}
        for title, keeps in (("each chain forked", False), ("one kept", True)):
            draw = by_chains(keeps=keeps)
            path = fmean(critical_path(lesson(problem, draw, 0, LINKED)) for problem in some)
            row[title] = f"{path:.0f} ({path / alone:.2f})"
        row["lessons divide %"] = f"{100 * fmean(by_chance[problem.id] for problem in some):.0f}"
        rows.append(row)
    return titled(rows)


def measured(kinds: Mapping[str, Any], reference: str) -> str:
    """A table with a row for each method and kind."""
    rows = [
        {
            "chains": kind,
            "method": method,
            "right %": interval(found["right"], 100, 1),
            "critical path (steps)": interval(found["path"], 1, 0),
            "forked %": interval(found["forked"], 100, 0),
            "divides %": interval(found["divides"], 100, 0),
            f"{reference} −, points": interval(found["right_gap"], 100, 1),
            f"path: {reference} ÷": interval(found["path_ratio"], 1, 2),
        }
        for kind in KINDS
        for method, found in kinds[kind].items()
    ]
    return titled(rows)


def shapes(found: Mapping[str, Mapping[str, int]]) -> str:
    """A table of the most frequent divisions of the reference, by the number of chains."""
    rows = [
        {
            "chains": kind,
            "episodes": str(sum(counts.values())),
            "shapes": str(len(counts)),
            "most frequent": "; ".join(f"`{shape}` {n}" for shape, n in list(counts.items())[:MOST]),
        }
        for kind, counts in found.items()
    ]
    return titled(rows)


def main() -> None:
    """Write the tables."""
    page = HOME / "README.md"
    blocks = {"teacher": taught()}
    if (file := HOME / "kinds-linked.json").is_file():
        found = json_object(file)
        blocks["kinds"] = measured(found, read_arena(HOME / "arena.toml").reference)
        blocks["shapes"] = shapes(found["shapes"])
    write_whole(page, fill(page.read_text(), blocks).encode())


if __name__ == "__main__":
    main()

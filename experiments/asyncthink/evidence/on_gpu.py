"""Seconds where a decoding step is bound by memory: recorded schedules, executed on a GPU by a model of a true shape.

```sh
python -m experiments.asyncthink.evidence.on_gpu thrice      # writes schedules.json into the folder of its runs
python -m benchmarks.lockstep RUNS/schedules.json --out RUNS/seconds-on-gpu.json      # on a machine with a GPU
```
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from math import log
from pathlib import Path
from typing import Any

import tyro

from benchmarks.schedules import schedule
from experiments.arena.results import Options as ArenaOptions
from experiments.shared.claims import best_held_out
from experiments.shared.estimates import as_json, exponential
from experiments.shared.recorded import episodes_of
from orgthink.arena.config import Arena, read_arena
from orgthink.files import write_whole
from orgthink.measure.crossed import crossed_difference
from orgthink.tabular import json_object
from orgthink.terminal import show

PROBLEMS = 16
"""Held-out problems of each training: the first ones by their ids, solved or not."""
SCHEDULES, SECONDS = "schedules.json", "seconds-on-gpu.json"


@dataclass(frozen=True)
class Options:
    """Write the schedules of an arena's reference and of its best baseline for `python -m benchmarks.lockstep`."""

    arena: tyro.conf.Positional[str]
    """Folder of the arena."""
    problems: int = PROBLEMS
    """Problems of each training."""


def on_gpu(runs: Path, arena: Arena) -> dict[str, Any] | None:
    """Method → seconds of the reference ÷ its seconds, a geometric mean with an interval over problems and trainings;
    and what was measured. `None` before it was.
    """
    file = runs / SECONDS
    if not file.exists():
        return None
    found = json_object(file)
    seconds = found["seconds"]
    ours = list(_cells(seconds[arena.reference]))
    others = {name: list(_cells(of)) for name, of in seconds.items() if name != arena.reference}
    ratios = {name: exponential(crossed_difference(ours, theirs)) for name, theirs in others.items()}
    return {"ratios": as_json(ratios), **found}


def _cells(seconds: dict[str, dict[str, float]]) -> Iterator[tuple[str, int, float]]:
    for training, problems in seconds.items():
        for problem, taken in problems.items():
            yield problem, int(training), log(taken)


def schedules(runs: Path, arena: Arena, rival: str, problems: int) -> dict[str, Any]:
    """Method → training → problem → turns, of the reference and of another method."""
    return {
        method: {
            str(seed): {
                episode.problem.id: schedule(episode)
                for episode in sorted(episodes_of(runs, method, seed), key=lambda each: each.problem.id)[:problems]
            }
            for seed in arena.seeds
        }
        for method in (arena.reference, rival)
    }


def main(options: Options) -> None:
    home = Path(__file__).parent / options.arena
    runs = ArenaOptions(home / "arena.toml").folder
    rival = best_held_out(json_object(home / "results.json"), "baseline")
    found = schedules(runs, read_arena(home / "arena.toml"), rival, options.problems)
    write_whole(runs / SCHEDULES, json.dumps(found).encode())
    show(f"{runs / SCHEDULES}: {options.problems} problems of each training, beside {rival}")


if __name__ == "__main__":
    main(tyro.cli(Options))

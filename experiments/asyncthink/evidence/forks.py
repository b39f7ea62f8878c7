"""What more forks are worth: accuracy, format errors, path and reward by the number of forks, in one step of trainings.

    python -m experiments.asyncthink.evidence.forks runs/evidence-asyncthink/trainings/whole-seed*

It is the first step, before any update, so that nothing but the lessons decides how well many forks go.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean

from orgthink.arena.tables import table
from orgthink.episode import Episode
from orgthink.errors import UserError
from orgthink.measure.latency import critical_path
from orgthink.measure.summary import has_format_error
from orgthink.measure.usage import forks
from orgthink.recipes.registry import training_of
from orgthink.rewards.asyncthink import AsyncThinkReward, concurrency_reward
from orgthink.store import RunFolder


def compared(episodes: Iterable[Episode], reward: AsyncThinkReward) -> str:
    """A table with a row for each number of forks."""
    groups: defaultdict[int, list[Episode]] = defaultdict(list)
    for episode in episodes:
        groups[forks(episode)].append(episode)
    rows = [{"forks": str(number), **_numbers(group, reward)} for number, group in sorted(groups.items())]
    return table(rows, [(title, lambda row, title=title: row[title]) for title in rows[0]]) if rows else "none"


def _numbers(group: Sequence[Episode], reward: AsyncThinkReward) -> dict[str, str]:
    right = fmean(episode.grade is not None and episode.grade.all_correct for episode in group)
    return {
        "episodes": str(len(group)),
        "right %": f"{100 * right:.0f}",
        "format errors %": f"{100 * fmean(map(has_format_error, group)):.0f}",
        "R_η": f"{fmean(concurrency_reward(episode, reward.threshold) for episode in group):.2f}",
        "critical path (steps)": f"{fmean(map(critical_path, group)):.0f}",
        "reward": f"{fmean(reward(episode).total for episode in group):.3f}",
    }


def main(folders: Sequence[str]) -> None:
    """Print the table. UserError for a folder that holds no run."""
    if not folders:
        raise UserError("name the run folders of trainings")
    runs = [RunFolder.open(Path(folder)) for folder in folders]
    episodes = [episode for run in runs for episode in run.episodes() if episode.step == 1]
    print(compared(episodes, training_of(runs[0]).job.settings.reward))


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except UserError as error:
        sys.exit(f"forks: {error}")

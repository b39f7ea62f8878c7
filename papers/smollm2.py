"""SmolLM2-135M taught to organize: `python -m papers.smollm2 LABEL=RUN …` stores evaluations; without one it prints.

No claim is made here: one training shows that a real model learns the protocol, and what a few steps of RL change.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from statistics import fmean

from orgthink.measure.accuracy import all_correct, has_format_error, was_truncated
from orgthink.measure.estimate import average, difference, proportion
from orgthink.measure.latency import critical_path
from orgthink.measure.usage import forks, sampled_tokens
from orgthink.record.episode import Episode
from orgthink.record.folder import RunFolder
from orgthink.training.recipes.any_model import ASYNCTHINK
from papers import outcomes
from papers.__main__ import interval, put
from papers.claims import Rows, rows
from papers.outcomes import HERE, Outcome

NAME = "smollm2"
BEFORE = "after fine-tuning, T = 1"
"""The row that those after RL are compared with. Labels of both begin with the task, if it is not `countdown-small`."""


def outcome(label: str, episode: Episode) -> Outcome:
    """What is stored of an episode."""
    return Outcome(
        row=label,
        training=0,
        problem=episode.problem.id,
        solved=bool(all_correct(episode)),
        path=critical_path(episode),
        tokens=sampled_tokens(episode),
        forks=forks(episode),
        followed=not has_format_error(episode),
        cut_off=was_truncated(episode),
        reward=ASYNCTHINK.settings.reward(episode).total,
    )


def store(runs: Iterable[tuple[str, Path]]) -> None:
    """Store the episodes of run folders under their labels; rows with other labels stay."""
    found = rows(NAME) if outcomes.path_of(NAME).exists() else Rows()
    for label, folder in runs:
        found[label] = [outcome(label, episode) for episode in RunFolder.open(folder).episodes()]
    outcomes.write(NAME, (one for each in found.values() for one in each))


def table(found: Rows) -> str:
    """A line for each row, with 95 % intervals over problems, in Markdown; and what RL changed."""
    columns = "model, temperature|problems|protocol followed, %|cut off, %|solved, %|critical path|tokens|forks"
    head = f"| {columns.replace('|', ' | ')} |"
    lines = [head, "|---|--:|--:|--:|--:|--:|--:|--:|"]
    for label, each in found.items():
        followed = interval(proportion((one.problem, one.followed) for one in each), 100, 0)
        cut = [(one.problem, one.cut_off) for one in each if one.cut_off is not None]
        ended = interval(proportion(cut), 100, 0) if cut else "not stored"
        share = interval(proportion((one.problem, one.solved) for one in each), 100, 0)
        path = interval(average((one.problem, one.path) for one in each), 1, 0)
        tokens, forked = fmean(one.tokens for one in each), fmean(one.forks for one in each)
        cells = [len({one.problem for one in each}), followed, ended, share, path, f"{tokens:.0f}", f"{forked:.1f}"]
        lines.append(f"| {label} | {' | '.join(map(str, cells))} |")
    lines.append("\nChanges by RL, in the reward of the paper (λ = 0.2):\n")
    for label, after in found.items():
        task, rl, _ = label.rpartition("after RL")
        if rl:
            lines.append(_change(label, after, found[f"{task}{BEFORE}"]))
    return "\n".join(lines)


def _change(label: str, after: Iterable[Outcome], before: Iterable[Outcome]) -> str:
    """A list item: paired differences of a row, with 95 % intervals over problems."""
    solved = difference(*([(one.problem, one.solved) for one in each] for each in (after, before)))
    path = difference(*([(one.problem, one.path) for one in each] for each in (after, before)))
    reward = difference(*([(one.problem, one.reward or 0.0) for one in each] for each in (after, before)))
    return (
        f"- {label}: solved {interval(solved, 100, 0)} points, critical path {interval(path, 1, 0)} steps, "
        f"reward {interval(reward, 1, 2)}."
    )


def main(arguments: list[str]) -> None:
    """Store what is given, and write the table into the page."""
    if arguments:
        store((label, Path(folder)) for label, _, folder in (argument.rpartition("=") for argument in arguments))
    text = table(rows(NAME))
    put(HERE / f"{NAME}.md", text)
    print(text)


if __name__ == "__main__":
    main(sys.argv[1:])

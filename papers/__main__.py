"""`python -m papers`: recompute claims and figures from the stored outcomes; `--again` measures everything again."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from orgthink.measure.estimate import Estimate
from papers import claims, evaluate, figures, question
from papers.claims import Rows
from papers.outcomes import HERE, Outcome

MORE: Mapping[str, Mapping[str, Callable[[Outcome], float]]] = {
    question.NAME: {
        "solved in 128 steps, %": lambda one: 100 * claims.in_time(one),
        "forks": lambda one: one.forks,
        "without format error, %": lambda one: 100 * one.followed,
    }
}
"""Paper → further columns of its table, which are means."""


def table(found: Rows, more: Mapping[str, Callable[[Outcome], float]] = {}) -> str:
    """Share solved and critical path of each row, with 95 % intervals, in Markdown."""
    lines = [f"| {' | '.join(('system', 'solved completely, %', 'critical path', 'tokens', *more))} |"]
    lines.append("|---|--:|--:|--:|" + "--:|" * len(more))
    for label, outcomes in found.items():
        share, path = interval(claims.solved(outcomes), 100, 1), interval(claims.path(outcomes), 1, 0)
        tokens = sum(one.tokens for one in outcomes) / len(outcomes)
        means = (
            f"{sum(map(value, outcomes)) / len(outcomes):.{int(name == 'forks')}f}" for name, value in more.items()
        )
        lines.append(f"| {' | '.join((label, share, path, f'{tokens:.0f}', *means))} |")
    return "\n".join(lines)


DEADLINES = (96, 112, 128, 160, question.TOKENS)
"""Decoding steps of the critical path; the last one is the whole budget."""
PAIRS = (
    ("single, taught", "sequential, taught"),
    ("push, taught", "sequential, taught"),
    ("push, taught", "barrier, taught"),
    ("single, RL path", "sequential, RL path"),
)
"""Rows that are compared at each of them."""


def at_deadlines(found: Rows) -> str:
    """Differences of the share solved in time, in points with 95 % intervals, by deadline, in Markdown."""
    lines = [f"| solved in time, points | {' | '.join(map(str, DEADLINES))} |", "|---|" + "--:|" * len(DEADLINES)]
    for first, second in PAIRS:
        gaps = (claims.compared(found, first, second, partial(claims.in_time, deadline=each)) for each in DEADLINES)
        cells = [f"{100 * gap.measured:.0f} [{100 * gap.low:.0f}, {100 * gap.high:.0f}]" for gap in gaps]
        lines.append(f"| {first} - {second} | {' | '.join(cells)} |")
    return "\n".join(lines)


def results(name: str, found: Rows, stored: Sequence[dict[str, Any]]) -> str:
    """What a page shows of its outcomes: its table, and its claims with what was measured."""
    text = f"{table(found, MORE.get(name, {}))}\n\n{verdicts([claim for claim in stored if claim['paper'] == name])}"
    return f"{text}\n\n{at_deadlines(found)}" if name == question.NAME else text


def interval(found: Estimate, factor: int, digits: int) -> str:
    """A mean with its 95 % interval, such as `72.0 [63.1, 80.2]`."""
    mean, low, high = (f"{factor * (value or 0):.{digits}f}" for value in (found.mean, found.low, found.high))
    return f"{mean} [{low}, {high}]"


README = {
    "asyncthink": ("asyncthink-before", "asyncthink-after", "countdown, 192 tokens an agent"),
    "marsrl": ("system-before", "system-after", "sudokus with ten empty cells"),
    "paramanager": ("manager-sft", "manager-after", "arithmetic, countdown, look-ups"),
}
"""Paper → its rows before and after RL, and its task, for the table of the README."""


def readme_table() -> str:
    """Before → after, and the strongest alternative, of each paper."""
    lines = ["| trained by | task | before, % solved | after | strongest alternative |", "|---|---|--:|--:|--:|"]
    for paper, (before, after, task) in README.items():
        found = claims.rows(paper)
        other = claims.best(found, [label for label in found if label not in (before, after)])
        cells = [interval(claims.solved(found[label]), 100, 0) for label in (before, after, other)]
        lines.append(f"| [{paper}](papers/{paper}.md) | {task} | {cells[0]} | {cells[1]} | {other} {cells[2]} |")
    return "\n".join(lines)


def put(file: Path, text: str) -> None:
    """Write a text between the marks of a page."""
    between = re.compile(r"(?<=<!-- results -->\n).*?(?=<!-- /results -->)", re.DOTALL)
    page = file.read_text(encoding="utf-8")
    file.write_text(between.sub(lambda _: f"\n{text}\n\n", page), encoding="utf-8")


def verdicts(stored: Sequence[dict[str, Any]]) -> str:
    """The claims of a paper with what was measured, as a list in Markdown."""
    return "\n".join(
        f"- **{'Holds' if claim['holds'] else 'Refuted'}**: {claim['claim']} ({claim['compared']}: "
        f"{claim['measured']} [{claim['low']}, {claim['high']}])"
        for claim in stored
    )


def main() -> int:
    """Print the table of each paper, and write the claims and figures; 1 if the stored claims differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("papers", nargs="*", metavar="PAPER", help=f"of {', '.join(claims.PAPERS)}; without one all")
    parser.add_argument("--again", action="store_true", help="train, evaluate and store the outcomes first (hours)")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a stored claim differs")
    given = parser.parse_args()
    if unknown := set(given.papers) - set(claims.PAPERS):
        parser.error(f"unknown paper {min(unknown)}")
    given.papers = given.papers or list(claims.PAPERS)
    if given.again:
        evaluate.measure(name for name in given.papers if name != question.NAME)
        if question.NAME in given.papers:
            question.measure(evaluate.RUNS / question.NAME)
    stored = claims.claims()
    for name in given.papers:
        found = claims.rows(name)
        stored = claims.decided(stored, name, claims.PAPERS[name](found))
        text = results(name, found, stored)
        if name == question.NAME:
            text += f"\n\n{question.attainable()}"
        print(f"\n{name}\n\n{text}")
        if not given.check:
            figures.draw(name, found)
            put(HERE / f"{name}.md", text)
    if given.check:
        return stored != claims.claims()
    claims.FILE.write_text(claims.text(stored), encoding="utf-8")
    put(HERE.parent / "README.md", readme_table())
    return 0


if __name__ == "__main__":
    sys.exit(main())

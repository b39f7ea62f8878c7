"""`python -m papers`: recompute claims and figures from the stored outcomes; `--again` measures everything again."""

from __future__ import annotations

import argparse
import sys

from orgthink.measure.estimate import Estimate
from papers import claims, evaluate, figures
from papers.claims import Rows


def table(found: Rows) -> str:
    """Share solved and critical path of each row, with 95 % intervals, in Markdown."""
    lines = ["| system | solved completely, % | critical path | tokens |", "|---|--:|--:|--:|"]
    for label, outcomes in found.items():
        share, path = interval(claims.solved(outcomes), 100, 1), interval(claims.path(outcomes), 1, 0)
        tokens = sum(one.tokens for one in outcomes) / len(outcomes)
        lines.append(f"| {label} | {share} | {path} | {tokens:.0f} |")
    return "\n".join(lines)


def interval(found: Estimate, factor: int, digits: int) -> str:
    """A mean with its 95 % interval, such as `72.0 [63.1, 80.2]`."""
    mean, low, high = (f"{factor * (value or 0):.{digits}f}" for value in (found.mean, found.low, found.high))
    return f"{mean} [{low}, {high}]"


def main() -> int:
    """Print the table of each paper, and write the claims and figures; 1 if the stored claims differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("papers", nargs="*", choices=[*claims.PAPERS, []], default=list(claims.PAPERS))
    parser.add_argument("--again", action="store_true", help="train, evaluate and store the outcomes first (hours)")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a stored claim differs")
    given = parser.parse_args()
    if given.again:
        evaluate.measure(given.papers)
    stored = claims.claims()
    for name in given.papers:
        found = claims.rows(name)
        stored = claims.decided(stored, name, claims.PAPERS[name](found))
        print(f"\n{name}\n\n{table(found)}\n")
        for claim in (one for one in stored if one["paper"] == name):
            print(
                f"{'holds' if claim['holds'] else 'refuted'}: {claim['claim']}\n"
                f"  {claim['compared']}: {claim['measured']} [{claim['low']}, {claim['high']}]"
            )
        if not given.check:
            figures.draw(name, found)
    if given.check:
        return stored != claims.claims()
    claims.FILE.write_text(claims.text(stored), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

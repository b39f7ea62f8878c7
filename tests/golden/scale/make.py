"""A few fixed episodes, and what each target gets of them.

`python tests/golden/scale/make.py` writes the files anew, after a mapping was changed on purpose.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from orgthink.record.episode import Episode, Origin, Problem, Sampling, Span, Trace
from orgthink.training.interchange import trainers as tinker
from orgthink.training.interchange import trainers as trl
from orgthink.training.interchange.problems import row_of
from orgthink.training.rows import PolicyRow, policy_row, policy_rows, untrained
from orgthink.util.errors import UserError

HERE = Path(__file__).parent
NEWEST = 3
"""Version of the newest weights."""

PROBLEM = Problem(
    "countdown-mini/1-2-3-4-5=10#0",
    "countdown-mini",
    "Make 10.",
    4,
    {"numbers": [1, 2, 3, 4, 5], "target": 10},
)


def seen(origin: Origin, *ids: int) -> Span:
    """A span that was given."""
    return Span(origin, " ".join(map(str, ids)), len(ids), ids)


def said(*ids: int, version: int = NEWEST) -> Span:
    """A span that weights of a version drew; token i has log-probability -i/16, which a 32-bit float holds exactly."""
    logprobs = tuple(-i / 16 for i in ids)
    return Span(Origin.SAMPLED, " ".join(map(str, ids)), len(ids), ids, logprobs, str(version), Sampling(8))


def asyncthink() -> list[PolicyRow]:
    """One episode with a worker, one without."""
    task, join = seen(Origin.PROMPT, 1, 2), seen(Origin.INJECTED, 31, 14)
    organizer = Trace("organizer", "organizer", None, (task, said(11, 12, 13), join, said(15)))
    worker = Trace("organizer/1", "worker", "organizer", (seen(Origin.PROMPT, 1, 3, 12), said(31, 16)))
    alone = Trace("organizer", "organizer", None, (task, said(17, 15)))
    forked = Episode("p|asyncthink|0", PROBLEM, "asyncthink", 2, (organizer, worker))
    single = Episode("p|asyncthink|1", PROBLEM, "asyncthink", 2, (alone,), sample=1)
    return policy_rows(forked, 1.0) + policy_rows(single, -1.0)


def marsrl() -> list[PolicyRow]:
    """A verifier's group of two for one input, each an episode of its own."""
    asked, name = seen(Origin.PROMPT, 1, 2, 40), f"{PROBLEM.id}#0|verifier_1|0123456789abcdef"
    members = [Trace("verifier_1/0", "verifier", None, (asked, said(41, 42)))]
    members += [Trace("verifier_1/1", "verifier", None, (asked, said(43)))]
    each = zip(members, (0.5, -0.5), strict=True)
    return [
        policy_row(trace, episode=f"{name}|{i}", group=name, advantage=advantage, version=NEWEST)
        for i, (trace, advantage) in enumerate(each)
    ]


def marsrl_segments() -> list[PolicyRow]:
    """A solver's output in two segments, the weights updated between them, and one of its tokens mastered."""
    name = f"{PROBLEM.id}#0|solver|fedcba9876543210"
    spans = (seen(Origin.PROMPT, 1, 2), said(51, 52, version=1), said(53, 54))
    trace = Trace("solver/0", "solver", None, spans)
    row = policy_row(trace, episode=f"{name}|0", group=name, advantage=0.75, version=NEWEST)
    return [untrained(row, {3})]


def paramanager() -> list[PolicyRow]:
    """A manager's two rounds; the agents it calls are frozen."""
    spans = (seen(Origin.PROMPT, 1, 2), said(61, 62), seen(Origin.INJECTED, 70, 71), said(63))
    manager = Trace("manager", "manager", None, spans)
    agent = Trace("manager/1", "agent", "manager", (seen(Origin.PROMPT, 61), said(70, 71)))
    episode = Episode("p|paramanager|0", PROBLEM, "paramanager", 2, (manager, agent))
    return policy_rows(episode, 0.25, lambda trace: trace.role == "manager")


ROWS: dict[str, Callable[[], list[PolicyRow]]] = {
    "asyncthink": asyncthink,
    "marsrl": marsrl,
    "marsrl segments": marsrl_segments,
    "paramanager": paramanager,
}

TARGETS: dict[str, Callable[[Sequence[PolicyRow], Any], Any]] = {
    "trl": lambda rows, how: trl.samples(rows, version=NEWEST, temperature=1.0, reduction=how),
    "tinker": lambda rows, how: tinker.data(rows, reduction=how),
}


def golden(target: str) -> str:
    """What a target gets of each kind of rows under each reduction, or why not."""
    found = {}
    for kind, rows in ROWS.items():
        for reduction in ("token-mean", "episode-mean"):
            try:
                found[f"{kind}, {reduction}"] = TARGETS[target](rows(), reduction)
            except UserError as error:
                found[f"{kind}, {reduction}"] = {"refused": str(error)}
    return json.dumps(found, indent=1, default=lambda array: array.tolist()) + "\n"


def problem() -> str:
    """The problem as a row of verl's."""
    return json.dumps(row_of(PROBLEM, "train", 0), indent=1) + "\n"


def files() -> dict[str, str]:
    """Name and content of each file."""
    return {f"{target}.json": golden(target) for target in TARGETS} | {"verl_problem.json": problem()}


if __name__ == "__main__":
    for name, content in files().items():
        (HERE / name).write_text(content)

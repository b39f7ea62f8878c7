"""Episodes for pictures: made by the real runtime on the scripted engine, in virtual time."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

from orgthink.engines.scripted import ScriptedEngine, Turn
from orgthink.organizations.asyncthink import AsyncThink
from orgthink.organizations.sequential import Sequential
from orgthink.organizations.votes import Parallel
from orgthink.record.episode import Episode, Problem, Sampling
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.budget import Limits
from orgthink.runtime.clock import run_virtual
from orgthink.runtime.organization import Organization
from orgthink.tasks.countdown import COUNTDOWN

NUMBERS, TARGET = [3, 5, 7, 8, 12], 24
SOLUTIONS = ("12 + 7 + 5", "(5 - 3) * 12", "7 * 5 - 8 - 3", "(7 - 5) * 12")
HOSTILE = (
    "<img src=x onerror=\"window.pwned='img'\"></script><script>window.pwned='script'</script>"
    "<!--<script> \u2028 {{page}} <svg/onload=window.pwned='svg'>"
)
"""What a hostile or merely confused model might say."""


def problem(number: int = 0) -> Problem:
    made = COUNTDOWN.problem(NUMBERS, TARGET)
    return replace(made, id=f"{made.id}#{number}")


def run(
    organization: Organization,
    turns: Sequence[Turn],
    *,
    capacity: int = 3,
    depth: int = 1,
    number: int = 0,
    max_tokens: int = 400,
    graded: bool = True,
    agent_seconds: float | None = None,
) -> Episode:
    """One graded attempt at the sample problem."""
    engine = ScriptedEngine(turns, model="scripted-1")
    limits = Limits(capacity, depth=depth, agent_seconds=agent_seconds)
    role = Backing(engine, Sampling(max_tokens, temperature=0.0))
    episode = run_virtual(attempt(organization, problem(number), role, limits=limits))
    grade = COUNTDOWN.grade(episode.problem, episode.answer or "")
    return replace(episode, grade=grade) if graded else episode


def scan(words: int, seed: int = 0) -> str:
    """Something to think: pairs, their value and the gap, as a model would. Whole lines of six words."""
    rng = random.Random(seed)
    lines = []
    for _ in range(words // 6):
        a, b = rng.sample(NUMBERS, 2)
        lines.append(f"{a} * {b} {a * b} {TARGET - a * b};")
    return "\n" + "\n".join(lines) + "\n"


def answer(found: Sequence[str]) -> str:
    return f"<ANSWER>\n{chr(10).join(found)}\n</ANSWER>"


def sequential(number: int = 0, found: int = 4, words: int = 120) -> Episode:
    return run(Sequential(), [Turn(scan(words, number) + answer(SOLUTIONS[:found]), seconds=0.02)], number=number)


def parallel(number: int = 0, found: int = 3) -> Episode:
    """Three thinkers below a controller without a model; the third runs into its token limit."""
    turns = [
        Turn(scan(60 + 6 * (number % 5), number) + answer(SOLUTIONS[:found]), seconds=0.02),
        Turn(scan(84, number + 1) + answer(SOLUTIONS[: max(found - 1, 0)]), seconds=0.025),
        Turn(scan(300, number + 2), seconds=0.02),
    ]
    return run(Parallel(), turns, number=number, max_tokens=140)


def asyncthink(number: int = 0, found: int = 4, words: int = 48) -> Episode:
    """Two workers, both joined: the organizer waits for the first, the second is back before it is asked for."""
    first, second = SOLUTIONS[: found // 2], SOLUTIONS[found // 2 : found]
    organizer = [
        "Divide by the last step.<FORK-1>sums and\ndifferences</FORK-1>" + scan(12, number),
        "<FORK-2>products</FORK-2>" + scan(18, number + 1) + "<JOIN-1>",
    ]
    turns = [
        Turn("".join(organizer), when="", seconds=0.02),
        Turn(scan(words + 6 * (number % 4), number + 2) + f"<RETURN>{'; '.join(first)}</RETURN>", "sums and", 0.02),
        Turn(scan(words // 2, number + 3) + f"<RETURN>{'; '.join(second)}</RETURN>", "products", 0.02),
        Turn(scan(12, number + 4) + "<JOIN-2>", "</JOIN-1>", 0.02),
        Turn(scan(6, number + 5) + answer(SOLUTIONS[:found]), "</JOIN-2>", 0.02),
    ]
    return run(AsyncThink(), turns, number=number)


def nested(number: int = 100) -> Episode:
    """A worker that organizes workers of its own, and a key that is used twice."""
    turns = [
        Turn(f"{scan(12)}<FORK-1>both halves</FORK-1>{scan(18, 1)}<JOIN-1>", seconds=0.02),
        Turn(
            f"{scan(6, 2)}<FORK-1>left part</FORK-1><FORK-2>right part</FORK-2>{scan(12, 3)}<JOIN-2>",
            "both halves",
            0.02,
        ),
        Turn(f"{scan(36, 4)}<RETURN>{SOLUTIONS[0]}</RETURN>", "left part", 0.02),
        Turn(f"{scan(54, 5)}<RETURN>{SOLUTIONS[1]}</RETURN>", "right part", 0.02),
        Turn(f"{scan(6, 6)}<JOIN-1>", "</JOIN-2>", 0.02),
        Turn(f"<RETURN>{SOLUTIONS[0]}; {SOLUTIONS[1]}</RETURN>", "both halves", 0.02),
        Turn(f"Once more.<FORK-1>the rest</FORK-1>{scan(12, 7)}<JOIN-1>", "</JOIN-1>", 0.02),
        Turn(f"{scan(24, 8)}<RETURN>{SOLUTIONS[2]}; {SOLUTIONS[3]}</RETURN>", "the rest", 0.02),
        Turn(answer(SOLUTIONS), "</JOIN-1>", 0.02),
    ]
    return run(AsyncThink(), turns, number=number, depth=2, capacity=4)


def never_joined(number: int = 101) -> Episode:
    """Answers while a worker is still at work."""
    turns = [
        Turn(f"<FORK-1>slow</FORK-1><FORK-2>quick</FORK-2>{scan(12)}<JOIN-2>", seconds=0.02),
        Turn(scan(240, 1), "slow", 0.02),
        Turn(f"{scan(24, 2)}<RETURN>{SOLUTIONS[0]}</RETURN>", "quick", 0.02),
        Turn(answer(SOLUTIONS[:2]), "</JOIN-2>", 0.02),
    ]
    return run(AsyncThink(), turns, number=number)


def errored(number: int = 102) -> Episode:
    """The engine fails under one worker, the other one runs into its deadline."""
    turns = [
        Turn(f"<FORK-1>first half</FORK-1><FORK-2>second half</FORK-2>{scan(6)}<JOIN-1>", seconds=0.02),
        Turn(scan(18, 1), "first half", 0.02, fails="connection reset by peer"),
        Turn(scan(300, 2), "second half", 0.02, hangs=True),
        Turn("<JOIN-2>", "</JOIN-1>", 0.02),
        Turn(answer(SOLUTIONS[:1]), "</JOIN-2>", 0.02),
    ]
    return run(AsyncThink(), turns, number=number, agent_seconds=2.0)


def faulty(number: int = 103) -> Episode:
    """Forks past the pool and joins what it never forked; tolerated, with a notice."""
    turns = [
        Turn(f"<FORK-1>one</FORK-1>{scan(6)}<FORK-2>two</FORK-2>", seconds=0.02),
        Turn(f"{scan(6)}<JOIN-7>", "pool overflow", 0.02),
        Turn(f"{scan(24, 1)}<RETURN>{SOLUTIONS[0]}</RETURN>", "one", 0.02),
        Turn("Never mind.<JOIN-1>", "unknown join", 0.02),
        Turn(f"{scan(6, 2)}{answer(SOLUTIONS[:1])}", "</JOIN-1>", 0.02),
    ]
    return run(AsyncThink(tolerant=True), turns, number=number, capacity=2)


def hostile(number: int = 104) -> Episode:
    """Model text that would run, were it ever taken for markup; not graded."""
    turns = [
        Turn(f"{HOSTILE}<FORK-1>{HOSTILE}</FORK-1> so <JOIN-1>", seconds=0.02),
        Turn(f"<RETURN>{HOSTILE}</RETURN>", "onerror", 0.02),
        Turn(f"<ANSWER>{HOSTILE}</ANSWER>", "</JOIN-1>", 0.02),
    ]
    return run(AsyncThink(), turns, number=number, graded=False)


def inheriting(number: int = 105) -> Episode:
    """A worker that inherits the organizer's context, keeps its own, and is told something; both start in mid-text."""
    turns = [
        Turn(f"Both halves.{scan(18)}<FORK-1>left part</FORK-1>{scan(12, 1)}<JOIN-1>", seconds=0.02),
        Turn(f"{scan(24, 2)}<RETURN>{SOLUTIONS[0]}</RETURN>", "left part", 0.02),
        Turn(f"{scan(6, 3)}<TELL-1>right part</TELL-1>{scan(12, 4)}<JOIN-1>", "</JOIN-1>", 0.02),
        Turn(f"{scan(30, 5)}<RETURN>{SOLUTIONS[1]}</RETURN>", "right part", 0.02),
        Turn(answer(SOLUTIONS[:2]), "</JOIN-1>", 0.02),
    ]
    return run(AsyncThink(worker_context="inherit", workers="persistent"), turns, number=number)


def episodes(rounds: int = 8) -> list[Episode]:
    """`rounds` of the three organizations, then the special cases."""
    rng = random.Random(7)
    return [
        *_rounds(rounds, rng),
        nested(),
        never_joined(),
        errored(),
        faulty(),
        hostile(),
    ]


def _rounds(rounds: int, rng: random.Random) -> Iterator[Episode]:
    for number in range(rounds):
        yield sequential(number, rng.choice((0, 2, 4)), 96 + 6 * rng.randrange(8))
        yield parallel(number, rng.choice((2, 3, 4)))
        yield asyncthink(number, rng.choice((2, 4, 4)), 36 + 12 * rng.randrange(3))

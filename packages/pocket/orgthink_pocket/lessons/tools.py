"""Lessons in writing programs and queries, in reviews, and in the use of tools.

They include the lessons of `orgthink_pocket.lessons.roles`, so that the model does not unlearn these roles.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

from orgthink.models.tokenizer import Tokenizer
from orgthink.organizations.prompts import prompt, style_named
from orgthink.record.episode import Origin, Problem, Trace
from orgthink.tasks import TASKS
from orgthink.training.rows import Row, row_of
from orgthink_pocket.lessons import rehearsals
from orgthink_pocket.lessons import roles as role_lessons
from orgthink_pocket.lessons.asyncthink import teacher_trace
from orgthink_pocket.teachers import helpers
from orgthink_pocket.teachers.arithmetic_review import slipped
from orgthink_pocket.teachers.countdown import OPERATORS
from orgthink_pocket.teachers.countdown_review import NO_SOLUTION, near_miss, solved
from orgthink_pocket.teachers.seen import COUNTDOWNS

SHARES = {"roles": 0.45, "coder": 0.12, "searcher": 0.08, "reviewer": 0.17, "user": 0.18}
"""Share of each kind of lesson: `roles` are those of `lessons.roles`, a `user` calls tools itself."""
TEMPLATES = {"coder": "code_reasoner", "searcher": "knowledge_searcher", "reviewer": "critical_reviewer"}
"""Prompt templates of the agents."""
NOISE = 0.2
"""Share of a reviewer's inputs that are no answer, or a random number."""


def lessons(seed: int, pool: int, tokenizer: Tokenizer) -> Iterator[Row]:
    """An endless stream of rows; the same for the same pool."""
    rng = random.Random(f"tools {seed}/{pool}")
    (eos,) = tokenizer.eos_ids
    problems = {name: TASKS[name].problems("train", rng.randrange(1 << 30)) for name in rehearsals.ALONE}
    roles = role_lessons.lessons("form", seed, pool)
    users = rehearsals.lessons(seed, pool, tokenizer, alone=True)
    while True:
        (kind,) = rng.choices(list(SHARES), list(SHARES.values()))
        if kind == "user":
            yield row_of(next(users))
            continue
        problem = next(problems["ledger-mini" if kind == "searcher" else rng.choice(list(rehearsals.ALONE))])
        trace = next(roles) if kind == "roles" else lesson(kind, problem, rng)
        yield row_of(trace, tokenizer.encode, eos)


def lesson(role: str, problem: Problem, rng: random.Random, style: str = "pocket") -> Trace:
    """A lesson of one of the agents. Coder and reviewer get a ledger with prices filled in, as from a manager."""
    kind, _, question = str(style_named(style).values(problem)["terse"]).partition(" ")
    if kind == "ledger" and role != "searcher" and (role == "reviewer" or rng.random() < 0.8):
        kind, question = "arithmetic", problem.data["expression"]
    answers = _answers(kind, problem, rng) if role == "reviewer" else []
    match role:
        case "coder":
            text = helpers.coded(question)
        case "searcher":
            text = helpers.queried(question)
        case _:
            text = helpers.reviewed(kind, question, answers)
    subtask = Problem("", "", f"{kind} {question}")
    request = prompt(style, TEMPLATES[role], subtask, answers=helpers.SEPARATOR.join(answers))[0].content
    return teacher_trace(role, None, request, [(text, Origin.SAMPLED)])


def _answers(kind: str, problem: Problem, rng: random.Random) -> list[str]:
    """Inputs of a reviewer: right and wrong answers, and texts that are no answers."""
    answers: list[str] = []
    for _ in range(rng.randint(1, 4)):
        if rng.random() < NOISE:
            answers.append(rng.choice((NO_SOLUTION, "copper in lyon costs 7 coins", str(rng.randint(1, 60)))))
            continue
        right = rng.random() < 0.5
        if kind in COUNTDOWNS:
            numbers, target = problem.data["numbers"], problem.data["target"]
            order = rng.sample(OPERATORS, len(OPERATORS))
            answers.append(solved(numbers, target, order)[1] if right else near_miss(numbers, target, rng))
        else:
            value = problem.data["value"] if right else slipped(problem.data["expression"], rng).answer
            answers.append(str(value))
    return list(dict.fromkeys(answers))

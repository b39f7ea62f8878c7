"""A small task for Inspect, graded by orgthink's own grader."""

from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.scorer import CORRECT, INCORRECT, Score, Scorer, Target, accuracy, scorer
from inspect_ai.solver import TaskState, generate
from question import QUESTION, solved


@scorer(metrics=[accuracy()])
def right() -> Scorer:
    async def score(state: TaskState, target: Target) -> Score:
        return Score(value=CORRECT if solved(state.output.completion) else INCORRECT)

    return score


@task
def countdown() -> Task:
    return Task([Sample(QUESTION)], solver=generate(), scorer=right())

"""The question that every client asks, and whether an answer solves it."""

from orgthink.tasks import task_named

QUESTION = "countdown 2 3 6 9 12 = 21"


def solved(answer: str | None) -> bool:
    task = task_named("countdown-mini")
    like = (problem for problem in task.problems("test", 0) if problem.id == "countdown-mini/2-3-6-9-12=21")
    return task.grade(next(like), answer or "").all_correct

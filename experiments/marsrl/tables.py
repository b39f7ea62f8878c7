"""The tables and the data of the figures, as pure functions of episodes. All results are JSON values.

Shares are fractions. Lengths are in tokens. Every number is {mean, low, high, n} with its 95 % interval over problems:
the value of a problem is the mean of its samples, and all problems have equal weight.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.shared.estimates import as_json, by_problem, ratio
from experiments.shared.runs import recipe_of
from orgthink.episode import Episode
from orgthink.grammar.verdict import VerdictForm
from orgthink.measure import verification
from orgthink.measure.estimate import Estimate, Values, average, difference, proportion
from orgthink.measure.usage import sampled_tokens
from orgthink.measure.verification import Correction, Judgement

Row = dict[str, Any]
"""One row of a table, as JSON values."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """Measures of one episode."""

    problem: str
    """Id of the problem."""
    sample: int
    """Index of the attempt at the problem."""
    solution: str
    """Text of the solver."""
    solver: bool
    """Whether the solver's first answer is all correct."""
    system: bool
    """Whether the final answer is all correct."""
    tokens: int
    """Number of tokens that all agents sampled."""
    solver_tokens: int
    """Number of tokens that the solver sampled."""
    judgements: tuple[Judgement, ...]
    """Every verification, in order."""
    corrections: tuple[Correction, ...]
    """Every correction, in order."""


def attempt_of(episode: Episode, form: VerdictForm) -> Attempt:
    """The measures of an episode. ValueError if it is not graded."""
    own = verification.solver_grade(episode)
    if episode.grade is None or own is None:
        raise ValueError(f"episode {episode.id} is not graded")
    solvers = [trace for trace in episode.traces if trace.role == "solver"]
    return Attempt(
        problem=episode.problem.id,
        sample=episode.sample,
        solution=solvers[-1].text,
        solver=own.all_correct,
        system=episode.grade.all_correct,
        tokens=sampled_tokens(episode),
        solver_tokens=sum(trace.steps for trace in solvers),
        judgements=tuple(verification.judgements(episode, form)),
        corrections=tuple(verification.corrections(episode)),
    )


@dataclass(frozen=True, slots=True)
class Point:
    """A method on a task with its attempts."""

    method: str
    """Name of the method in the tables."""
    model: str
    """Name of the trained run or the shipped model."""
    task: str
    """Name of the task."""
    attempts: Sequence[Attempt]
    """Attempts, several at each problem."""

    @property
    def seed(self) -> int:
        """Seed of the training."""
        return recipe_of(self.model)[1] or 0


Measure = Callable[[Point], Values]


def _solver(point: Point) -> Values:
    return [(attempt.problem, attempt.solver) for attempt in point.attempts]


def _system(point: Point) -> Values:
    return [(attempt.problem, attempt.system) for attempt in point.attempts]


def _judged(measure: Callable[[Iterable[Judgement]], Values]) -> Measure:
    """A measure of the first verdict of each episode, which is about the solver's solution.

    The same solution may be judged again, after a report without a verdict or a truncated correction. Counting these
    verdicts too would give the solution more weight.
    """
    return lambda point: measure(judged for attempt in point.attempts for judged in attempt.judgements[:1])


def _fixed(point: Point) -> Values:
    """Values of `verification.fixed` for the first correction of each episode."""
    return verification.fixed(corrected for attempt in point.attempts for corrected in attempt.corrections[:1])


VERIFICATION: dict[str, Measure] = {
    "system": _system,
    "verifier_accuracy": _judged(verification.accuracy),
    "recall": _judged(verification.recall),
    "false_alarms": _judged(verification.false_alarms),
    "unparsed": _judged(verification.unparsed),
    "fix_rate": _fixed,
}
"""Measures of figure 4, on the same solutions."""


def row(point: Point, repeats: Sequence[Point] = ()) -> Row:
    """A row of tables 1 and 2: solver and system. `repeats` are trainings with other seeds."""
    return {"method": point.method, "task": point.task, **_row(point), "seeds": [_row(one) for one in repeats]}


def _row(point: Point) -> Row:
    solver, system = _solver(point), _system(point)
    found = {
        "solver": proportion(solver),
        "system": proportion(system),
        "gain": difference(system, solver),
        "solver_tokens": average((attempt.problem, attempt.solver_tokens) for attempt in point.attempts),
        "tokens": average((attempt.problem, attempt.tokens) for attempt in point.attempts),
    }
    return {"model": point.model, "seed": point.seed, **as_json(found)}


def error_reduction(ours: Point, base: Point) -> Row:
    """Relative reduction of errors: of our system against the base's solver, and against our solver."""
    left = _errors(_system(ours))
    found = {
        "of_base_solver": _less(ratio(left, _errors(_solver(base)))),
        "of_own_solver": _less(ratio(left, _errors(_solver(ours)))),
    }
    return {"task": ours.task, **as_json(found)}


def _errors(right: Values) -> list[tuple[str, float]]:
    return by_problem((problem, 1.0 - float(value)) for problem, value in right if value is not None)


def _less(left: Estimate) -> Estimate:
    """The relative reduction for a ratio of remaining errors."""
    mean, high, low = (None if value is None else 1 - value for value in (left.mean, left.low, left.high))
    return Estimate(mean, low, high, left.n)


def solved_by(solver: str, point: Point) -> Row:
    """Table 3: the trained verifier and corrector with another model as solver."""
    return {"solver_model": solver, **row(point)}


def strategy(point: Point, own: Point, base: Point) -> Row:
    """A training of figure 4 on the base's solutions; `own` is the same training with its own solver.

    `same_solutions` is the share of attempts whose solution is exactly the base's.
    """
    written = {(attempt.problem, attempt.sample): attempt.solution for attempt in base.attempts}
    same = [written[attempt.problem, attempt.sample] == attempt.solution for attempt in point.attempts]
    found = {name: proportion(measure(point)) for name, measure in VERIFICATION.items()}
    found |= {"own_solver": proportion(_solver(own)), "own_system": proportion(_system(own))}
    labels = {"method": point.method, "model": point.model, "seed": point.seed}
    return {**labels, **as_json(found), "same_solutions": sum(same) / len(same)}


def comparison(first: Sequence[Point], second: Sequence[Point]) -> Row:
    """First strategy minus the second on the same problems and solutions: over all shared seeds, then for each seed.

    The interval is over problems, for these trainings.
    """
    pairs = [(one, other) for one in first for other in second if one.seed == other.seed]

    def gap(measure: Measure, pairs: Sequence[tuple[Point, Point]]) -> Estimate:
        ours, theirs = ([value for point in points for value in measure(point)] for points in zip(*pairs, strict=True))
        return difference(ours, theirs)

    found = {name: gap(measure, pairs) for name, measure in VERIFICATION.items()}
    each = [
        {"seed": pair[0].seed, **{name: gap(measure, [pair]) for name, measure in VERIFICATION.items()}}
        for pair in pairs
    ]
    return {"first": first[0].method, "second": second[0].method, **as_json({**found, "seeds": each})}


def verifying(method: str, run: str, lines: Iterable[Mapping[str, Any]]) -> list[Row]:
    """Figure 5: measures of a verifier over training on the inputs of its strategy, from the metrics.jsonl of a run."""
    names = ("accuracy", "recall", "false_alarms", "judged_wrong_solutions")
    labels = {"method": method, "model": run, "seed": recipe_of(run)[1] or 0}
    return [{**labels, "step": line["step"], **{name: line["verifier"].get(name) for name in names}} for line in lines]


def lengths(method: str, run: str, lines: Iterable[Mapping[str, Any]]) -> list[Row]:
    """Figure 6: mean number of tokens of each stream's outputs over training, from the metrics.jsonl of a run."""
    return [{"method": method, "model": run, "step": line["step"], "tokens": line["tokens"]} for line in lines]

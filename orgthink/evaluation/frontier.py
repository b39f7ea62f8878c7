"""Systems over the values of a setting, from stored runs: accuracy against the critical path and the tokens, and the
reward at each price."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from orgthink.evaluation.plan import Evaluation
from orgthink.measure.comparison import by_organization
from orgthink.measure.summary import summarise
from orgthink.record.episode import Episode
from orgthink.record.folder import RunFolder
from orgthink.rewards import EpisodeReward
from orgthink.util.errors import pick
from orgthink.util.install import needing
from orgthink.util.settings import plain

if TYPE_CHECKING:
    from matplotlib.figure import Figure

AXES = {"critical_path_steps": "critical path (decoding steps)", "sampled_tokens": "sampled tokens"}
"""Measure → title of its axis."""
Point = tuple[Any, str, Sequence[Episode]]
"""Value of the setting (`None`: no limit, or a system without the setting), label of the system, graded episodes."""


def lines_over(folders: Iterable[RunFolder], over: str) -> list[list[Point]]:
    """Lines of points, in the order of their values of `over`: a setting of an organization, a limit, or a setting of
    the sampling. The points of a line differ in nothing else that was set. UserError for an unknown setting."""
    lines, known = dict[str, list[Point]](), dict[str, Any]()
    for folder in folders:
        plan = folder.settings("eval", Evaluation)
        for label, episodes in by_organization(one for one in folder.episodes() if one.grade is not None).items():
            how, (sampling, limits) = plan.organizations[label], plan.budget_of(label)
            own = plain(limits) | plain(sampling) | {**how.settings, "name": how.organization}
            known |= own
            value = own.pop(over, None)
            conditions = plain((how.engine or plan.engine, plan.task, plan.split, plan.n, plan.samples, own))
            lines.setdefault(repr(conditions), []).append((value, label, episodes))
    pick("setting", over, known)
    return [sorted(line, key=lambda point: (point[0] is None, point[0])) for line in lines.values()]


def frontier(folders: Iterable[RunFolder], over: str, rewards: Mapping[str, EpisodeReward] | None = None) -> Figure:
    """A line for each system, with 95 % intervals; with `rewards`, by the names of their prices, also the mean reward
    at each value, and a star at the best. `savefig` writes it to a file. UserError without matplotlib."""
    figure, axes = panels(3 if rewards else 2)
    for line in lines_over(folders, over):
        name = " … ".join(dict.fromkeys((line[0][1], line[-1][1])))
        rows, values = [summarise(found)[label] for _, label, found in line], [str(value) for value, *_ in line]
        for panel, measure in zip(axes, AXES, strict=False):
            draw(panel, rows, measure, name, values)
        for price, reward in (rewards or {}).items():
            means = [fmean(reward(one).total for one in found) for *_, found in line]
            axes[2].plot(values, means, "o-", label=f"{name}, {price}")
            axes[2].plot(values[means.index(max(means))], max(means), "*", ms=15, color="black", zorder=3)
            axes[2].set(xlabel=over, ylabel="mean reward")
            axes[2].legend()
    return figure


def panels(count: int) -> tuple[Figure, Sequence[Any]]:
    """A figure with panels side by side. UserError without matplotlib."""
    with needing("plots", "a figure"):
        from matplotlib import pyplot
    figure, axes = pyplot.subplots(1, count, layout="constrained", figsize=(1.4 + 5 * count, 4.8), squeeze=False)
    pyplot.close(figure)  # a notebook shows what is returned, and not a second time
    return figure, axes[0]


def draw(axes: Any, rows: Sequence[Mapping[str, Any]], measure: str, label: str, values: Sequence[str] = ("",)) -> None:
    """A point with 95 % intervals and its value for each row, and a line that joins them."""
    xs, ys = [row[measure] for row in rows], [row["all_correct"] for row in rows]
    at = [x["mean"] for x in xs], [100 * y["mean"] for y in ys]
    axes.errorbar(*at, yerr=_errors(ys, 100), xerr=_errors(xs, 1), fmt="o-", capsize=3, label=label)
    for value, *place in zip(values, *at, strict=True):
        axes.annotate(value, place, xytext=(5, 4), textcoords="offset points", fontsize=8)
    # Autoscaling goes on: the next system may be further to the right.
    axes.set(xlabel=AXES[measure], ylabel="all correct (%)", ylim=(-3, 103), xlim=(0, None), autoscalex_on=True)
    axes.legend()


def _errors(estimates: Sequence[Mapping[str, Any]], factor: int) -> list[list[float]]:
    """Distances from the means to the lower and upper ends of their intervals; 0 without one."""
    ends = [[one["mean"] if one[end] is None else one[end] for one in estimates] for end in ("low", "high")]
    return [[factor * abs(end - one["mean"]) for end, one in zip(each, estimates, strict=True)] for each in ends]

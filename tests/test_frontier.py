"""Lines of systems over a setting, from stored runs, and the reward of each point at prices."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rule_engine import RuleEngine

import orgthink
from orgthink.evaluation.frontier import Point, draw, frontier, lines_over, panels
from orgthink.measure.latency import critical_path
from orgthink.measure.usage import sampled_tokens
from orgthink.organizations.asyncthink import AsyncThink
from orgthink.record.folder import RunFolder
from orgthink.rewards.priced import PricedReward
from orgthink.util.errors import UserError

ROWS = [{"question": "What is 3 * 4?", "answer": 12}, {"question": "What is 5 * 7?", "answer": 35}]


def thinks(text: str) -> str:
    """Thinks for twenty words before it answers, so that a smaller budget cuts it off; one of two answers is right."""
    return " w" * 20 + " <ANSWER> 12 </ANSWER>"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[RunFolder]:
    place = tmp_path_factory.mktemp("runs")

    def run(name: str, **how: Any) -> RunFolder:
        given = {"task": ROWS, "grader": "exact", "model": RuleEngine(thinks), "concurrency": 1, "out": place / name}
        return RunFolder.open(orgthink.evaluate(**given | how).path)

    systems = {"one": "sequential", "team": AsyncThink()}
    budgets = [run(f"b{most}", organizations=systems, max_tokens=most) for most in (100, 9, 30)]
    told = {f"p{price}": AsyncThink(path_price=price) for price in (0.5, 0.0, 2.0)}
    return [*budgets, run("told", organizations=told, max_tokens=40)]


def of(line: list[Point]) -> list[tuple[Any, str]]:
    return [(value, label) for value, label, _ in line]


def test_a_line_joins_what_differs_in_the_setting_only(folders: list[RunFolder]) -> None:
    one, team = lines_over(folders[:3], "max_tokens")
    assert of(one) == [(9, "one"), (30, "one"), (100, "one")] and of(team) == [(9, "team"), (30, "team"), (100, "team")]
    (told,) = lines_over(folders[3:], "path_price")
    assert of(told) == [(0.0, "p0.0"), (0.5, "p0.5"), (2.0, "p2.0")]
    apart = lines_over(folders, "capacity")
    assert len(apart) == 9 and all(len(line) == 1 for line in apart), "they differ in more than their capacity"
    mixed = lines_over(folders, "path_price")
    assert sorted(map(len, mixed)) == [1] * 6 + [3] and {point[0] for line in mixed for point in line} >= {
        None,
        0.0,
        2.0,
    }
    for path in (["max_tokns"], ["no_such_setting"]):
        with pytest.raises(UserError, match="unknown setting"):
            lines_over(folders, *path)


def test_the_figure_has_the_means_and_stars_the_best_value_at_each_price(
    folders: list[RunFolder], tmp_path: Path
) -> None:
    rewards = {"free": PricedReward("all", 0.0, 0.0), "dear": PricedReward("all", 0.0, 100.0)}
    figure = frontier(folders[:3], "max_tokens", rewards)
    path, tokens, reward = figure.axes
    lines = lines_over(folders[:3], "max_tokens")
    for panel, measure in ((path, critical_path), (tokens, sampled_tokens)):
        drawn = {each.get_label(): each.lines[0].get_xydata().tolist() for each in panel.containers}
        for line in lines:
            wanted = []
            for _, _, episodes in line:
                right = [100 * one.grade.all_correct for one in episodes]  # type: ignore[union-attr]
                wanted.append([sum(map(measure, episodes)) / len(episodes), sum(right) / len(right)])
            assert drawn[line[0][1]] == [pytest.approx(one) for one in wanted]
        assert [text.get_text() for text in panel.texts] == ["9", "30", "100"] * 2
    curves = {line.get_label(): line for line in reward.lines if not line.get_label().startswith("_")}
    assert set(curves) == {f"{system}, {price}" for system in ("one", "team") for price in rewards}
    for name, line in zip(("one", "team"), lines, strict=True):
        for price, how in rewards.items():
            means = [sum(how(one).total for one in episodes) / len(episodes) for _, _, episodes in line]
            assert curves[f"{name}, {price}"].get_ydata().tolist() == pytest.approx(means)
            assert curves[f"{name}, {price}"].get_xdata().tolist() == ["9", "30", "100"]
    stars = [line.get_xydata().tolist()[0] for line in reward.lines if line.get_marker() == "*"]
    assert [x for x, _ in stars] == [1, 0, 1, 0], "more tokens are right, where they are free; few are best, where dear"
    figure.savefig(tmp_path / "frontier.svg")
    assert len(frontier(folders[:3], "max_tokens").axes) == 2


def test_without_matplotlib_it_is_one_line(folders: list[RunFolder], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(UserError, match="needs matplotlib: pip install"):
        frontier(folders[:3], "max_tokens")


def test_no_point_is_cut_off() -> None:
    pytest.importorskip("matplotlib")
    _, (axes,) = panels(1)
    for steps in (100, 300, 200):
        at = {"mean": steps, "low": steps, "high": steps}
        draw(axes, [{"critical_path_steps": at, "all_correct": at}], "critical_path_steps", "one")
    left, right = axes.get_xlim()
    assert left == 0 and right > 300

"""`orgthink export rows`: recorded episodes as other trainers' rows, by the reward and credit of a recipe."""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from pathlib import Path
from statistics import fmean, pstdev

import pytest
from echo import TASK
from engines.models import tiny_model
from terse import TERSE
from tiny_policy import TINY
from tiny_recipes import ASYNCTHINK, named

from orgthink.cli import main
from orgthink.credit.shared import advantages
from orgthink.record.episode import Episode, Origin
from orgthink.record.folder import RunFolder

RECIPE = named("ASYNCTHINK")
pytestmark = pytest.mark.usefixtures("tiny_policy")


def evaluated(folder: Path, *options: str, code: int = 0) -> Path:
    """A run folder; the code is 1 where no episode has an answer."""
    wanted = ["--model", str(TINY), "--prompts", TERSE, "--task", TASK, "--split", "train", "--n", "4"]
    assert main(["eval", *wanted, "--capacity", "4", "--out", str(folder), *options]) == code
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, tiny_policy: Path) -> Path:
    folder = tmp_path_factory.mktemp("run") / "run"
    return evaluated(folder, "--organizations", "asyncthink", "--samples", "4", "--max-tokens", "24")


def exported(run: Path, out: Path) -> list[dict]:
    assert main(["export", "rows", str(run), "--trust", "--recipe", RECIPE, "--out", str(out)]) == 0
    return [json.loads(line) for line in out.read_text().splitlines()]


def expected(run: Path) -> dict[tuple[str, str], tuple[float, list[int]]]:
    """Advantage and ids, up to the last sampled one, of each trace of the groups that are not flat."""
    groups: defaultdict[str, list[Episode]] = defaultdict(list)
    for episode in RunFolder.open(run).episodes():
        groups[episode.problem.id].append(episode)
    found = {}
    for episodes in groups.values():
        for episode, advantage in zip(
            episodes, advantages([ASYNCTHINK.settings.reward(e).total for e in episodes]) or (), strict=False
        ):
            for trace in episode.traces:
                ids: list[int] = []
                end = 0
                for span in trace.spans:
                    ids += span.token_ids or ()
                    end = len(ids) if span.origin is Origin.SAMPLED and span.tokens else end
                if end:
                    found[episode.id, trace.agent] = advantage, ids[:end]
    return found


def test_rows_have_the_advantages_and_ids_of_the_record(run: Path, tmp_path: Path):
    items = exported(run, tmp_path / "rows.jsonl")
    wanted = expected(run)
    assert len({advantage for advantage, _ in wanted.values()}) > 2
    assert len(items) == len(wanted)
    assert {(item["episode"], item["agent"]): (item["advantage"], item["token_ids"]) for item in items} == wanted
    for item in items:
        assert {len(item[name]) for name in ("token_ids", "trained", "logprobs")} == {len(item["token_ids"])}
        assert item["trained"][-1] and not item["trained"][0]
        assert all(p == 0 for p, trained in zip(item["logprobs"], item["trained"], strict=True) if not trained)
    assert sum(item["weight"] * sum(item["trained"]) for item in items) == pytest.approx(1)


def test_settings_of_the_recipe_count(run: Path, tmp_path: Path):
    out = tmp_path / "rows.jsonl"
    wanted = ["export", "rows", str(run), "--trust", "--recipe", RECIPE, "--out", str(out)]
    assert main([*wanted, "--set", "credit.delta=1"]) == 0
    items = [json.loads(line) for line in out.read_text().splitlines()]
    groups: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for episode in RunFolder.open(run).episodes():
        groups[episode.problem.id][episode.id] = ASYNCTHINK.settings.reward(episode).total
    wanted = []
    for (episode, _), (_, ids) in expected(run).items():
        (of_group,) = (group for group in groups.values() if episode in group)
        away = of_group[episode] - fmean(of_group.values())
        wanted.append((ids, pytest.approx(away / (pstdev(of_group.values()) + 1))))
    found = [(item["token_ids"], item["advantage"]) for item in items]
    assert len(found) == len(wanted) and all(one in wanted for one in found) and all(one in found for one in wanted)


def test_what_makes_no_rows_is_one_line(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    single = evaluated(tmp_path / "single", "--organizations", "asyncthink", "--max-tokens", "2", code=1)
    short = evaluated(
        tmp_path / "short", "--organizations", "asyncthink", "--max-tokens", "2", "--samples", "2", code=1
    )
    several = evaluated(
        tmp_path / "several",
        "--organizations",
        "asyncthink",
        "sequential",
        "--max-tokens",
        "2",
        "--samples",
        "2",
        code=1,
    )
    other = tiny_model(tmp_path / "other")
    names = ("other", TINY.name)
    mixed = evaluated(
        tmp_path / "mixed", "--organizations", "asyncthink", "--roles", f"worker={other}", "--samples", "2"
    )
    half = Path(shutil.copytree(run, tmp_path / "half"))
    episodes = RunFolder.open(half).episodes_file
    episodes.write_text("".join(episodes.read_text().splitlines(keepends=True)[:-1]))
    capsys.readouterr()
    for folder, options, says in (
        (half, ["--recipe", RECIPE], "half a group is no fair comparison"),
        (single, ["--recipe", RECIPE], "one attempt at each problem"),
        (short, ["--recipe", RECIPE], "no group whose attempts differ"),
        (several, ["--recipe", RECIPE], "holds asyncthink, sequential: the recipe is for asyncthink by itself"),
        (run, ["--recipe", named("SEQUENTIAL")], "holds asyncthink: the recipe is for sequential by itself"),
        (mixed, ["--recipe", RECIPE], f"{min(names)}, {max(names)} sampled what the recipe trains"),
        (tmp_path / "none", ["--recipe", RECIPE], "no run folder"),
        (run, ["--recipe", named("MARSRL")], "no rows of whole episodes"),
        (run, ["--recipe", "asyncthink-sft"], "no rows of whole episodes"),
        (run, ["--recipe", "marsrl-qwn3"], "did you mean marsrl-qwen3?"),
        (run, ["--recipe", RECIPE, "--set", "mixd=true"], "--set mixd=true"),
    ):
        out = tmp_path / "refused.jsonl"
        assert main(["export", "rows", str(folder), "--trust", "--out", str(out), *options]) == 2
        said = capsys.readouterr().err
        assert says in said and said.count("\n") == 1 and not out.exists()

"""What the recipes share: runs that bear a recipe's name, evaluations on demand, intervals and tables."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from experiments.shared import runs
from experiments.shared.estimates import as_json, by_problem, ratio
from experiments.shared.laboratory import evaluate_share, share, took
from experiments.shared.readme import fill, interval
from experiments.shared.times import times_table
from orgthink.errors import UserError
from orgthink.measure.estimate import Estimate
from orgthink.store import RunFolder

RECIPE = "asyncthink-countdown-mini"


def test_the_interval_of_a_ratio_covers_it_as_often_as_it_says():
    rng = random.Random(1)
    covered = 0
    for _ in range(60):
        hard = [rng.uniform(50, 150) for _ in range(60)]
        ours = [(str(i), 0.7 * h + rng.gauss(0, 15)) for i, h in enumerate(hard)]
        found = ratio(ours, [(str(i), h + rng.gauss(0, 15)) for i, h in enumerate(hard)])
        covered += found.low <= 0.7 <= found.high
    assert covered >= 50  # of 57 expected; fewer have a chance of 0.2 %


def test_intervals_as_they_are_written():
    assert interval({"mean": 0.894, "low": 0.88, "high": 0.9, "n": 5}, 100, 1) == "89.4 [88.0, 90.0]"
    assert interval({"mean": 7.0, "low": None, "high": None, "n": 1}, 1, 0) == "7"
    assert interval(None, 1, 0) == interval({"mean": None, "low": None, "high": None, "n": 0}, 1, 0) == "–"


def test_a_run_is_finished_with_the_checkpoint_of_its_last_step(tmp_path: Path):
    from orgthink.recipes.registry import RECIPES, Training, start

    name = RECIPE
    assert not runs.finished(tmp_path / name)
    start(Training(name, RECIPES[name]), tmp_path / name)
    last = tmp_path / name / "checkpoints" / f"step-{RECIPES[name].steps:06d}"
    (last.parent / "step-000001").mkdir(parents=True)
    assert not runs.finished(tmp_path / name)
    with pytest.raises(UserError, match="train it first"):
        runs.model_folder(tmp_path, name)
    last.mkdir()
    assert runs.finished(tmp_path / name)
    assert runs.model_folder(tmp_path, name) == last / "model"


@pytest.mark.parametrize("name", ["pocket-plain", "pocket-skills", RECIPE, "marsrl-arithmetic-mini"])
def test_every_kind_of_training_is_recognised(tmp_path: Path, name: str):
    from orgthink.recipes.registry import RECIPES, Training, start

    start(Training(name, RECIPES[name]), tmp_path / name)
    (tmp_path / name / "checkpoints" / f"step-{RECIPES[name].steps:06d}").mkdir(parents=True)
    assert runs.finished(tmp_path / name)


def test_a_run_of_other_settings_does_not_bear_the_recipes_name(tmp_path: Path):
    from orgthink.recipes.registry import RECIPES, Training, adjusted, start

    name = RECIPE
    start(Training(name, adjusted(RECIPES[name], {}, ["reward.weight=0"])), tmp_path / "other" / name)
    with pytest.raises(UserError, match="other settings than the recipe"):
        runs.finished(tmp_path / "other" / name)
    start(Training(name, adjusted(RECIPES[name], {}, ["drift=0.5", "save_every=3"])), tmp_path / "same" / name)
    assert not runs.finished(tmp_path / "same" / name), "not trained yet, but nothing that decides a number differs"


@pytest.mark.parametrize("other", [{"model": "pocket-async"}, {"mixed_precision": True}, {"lora": {"rank": 4}}])
def test_a_run_from_another_model_does_not_bear_the_recipes_name(tmp_path: Path, other: dict):
    from orgthink.recipes.registry import RECIPES, Training, adjusted, start

    start(Training(RECIPE, adjusted(RECIPES[RECIPE], other, [])), tmp_path / "other" / RECIPE)
    with pytest.raises(UserError, match="other settings than the recipe"):
        runs.finished(tmp_path / "other" / RECIPE)
    start(Training(RECIPE, adjusted(RECIPES[RECIPE], {"device": "cpu"}, [])), tmp_path / "same" / RECIPE)
    assert not runs.finished(tmp_path / "same" / RECIPE), "not trained yet, but it may be trained anywhere"


def test_a_recipe_without_a_model_starts_from_the_run_that_is_named(tmp_path: Path):
    from orgthink.recipes.registry import RECIPES, Training

    name, base = "asyncthink-countdown-mini-no-sft", "pocket-plain"
    for steps, right in ((RECIPES[base].steps, True), (1, False)):
        model = f"/elsewhere/{base}/checkpoints/step-{steps:06d}/model"
        run = tmp_path / str(steps) / name
        RunFolder.create(run, "train", Training(name, replace(RECIPES[name], model=model)))
        assert not runs.finished(run), "any model, if none is named"
        if right:
            assert not runs.finished(run, base), "the runs may have been moved"
        else:
            with pytest.raises(UserError, match=f"not from {base}"):
                runs.finished(run, base)


def test_a_run_from_before_a_setting_existed_has_its_default(tmp_path: Path):
    from orgthink.recipes.registry import RECIPES, Training, start

    start(Training(RECIPE, RECIPES[RECIPE]), tmp_path / RECIPE)
    file = tmp_path / RECIPE / "config.json"
    config = json.loads(file.read_text())
    del config["settings"]["job"]["dtype"], config["settings"]["job"]["sampler_settings"]
    file.write_text(json.dumps(config))
    assert not runs.finished(tmp_path / RECIPE)


def test_trained_tokens_are_those_of_all_steps(tmp_path: Path):
    assert runs.trained_tokens(tmp_path) == 0
    lines = [json.dumps({"trained_tokens": n}) + "\n" for n in (5, 7)]
    (tmp_path / "metrics.jsonl").write_text("".join(lines) + '{"trained_tok')
    assert runs.trained_tokens(tmp_path) == 12


def test_other_weights_are_another_model(tmp_path: Path):
    (tmp_path / "model.safetensors").write_bytes(b"one")
    before = runs.fingerprint(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"two")
    assert runs.fingerprint(tmp_path) != before


def test_seconds_of_all_sessions_count(tmp_path: Path):
    lines = [{"elapsed": elapsed} for elapsed in (1.0, 4.0, 0.5, 2.0)]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"elap')
    assert took(tmp_path) == 6.0


def test_a_ratio_to_nothing_is_no_number():
    assert ratio([("p", 1.0), ("q", 2.0)], [("p", 0.0), ("q", 0.0)]) == Estimate(None, None, None, 2)
    assert ratio([("p", 1.0), ("q", 2.0)], [("p", 0.0), ("q", 2.0)]) == Estimate(1.5, None, None, 2)


def test_a_problem_has_the_mean_of_its_samples():
    assert by_problem([("p", 1.0), ("q", 0.0), ("p", 0.0)]) == [("p", 0.5), ("q", 0.0)]


def test_estimates_become_json_however_deep_they_are():
    one = {"mean": 1.0, "low": None, "high": None, "n": 1}
    assert as_json({"a": [Estimate(1.0, None, None, 1)], "b": {"c": "d"}}) == {"a": [one], "b": {"c": "d"}}


def test_a_marked_place_is_filled_in_and_nothing_else():
    page = "a\n<!-- x -->\nold\n<!-- /x -->\nb <!-- y --><!-- /y -->"
    filled = fill(page, {"x": r"\1 new", "y": "z"})
    assert filled == "a\n<!-- x -->\n\n\\1 new\n\n<!-- /x -->\nb <!-- y -->\n\nz\n\n<!-- /y -->"
    assert fill(filled, {"x": r"\1 new", "y": "z"}) == filled


def test_a_training_with_another_seed_bears_it_in_its_name(tmp_path: Path):
    from orgthink.recipes.registry import RECIPES, Training, adjusted, start

    assert runs.recipe_of(f"{RECIPE}-seed12") == (RECIPE, 12)
    assert runs.recipe_of(RECIPE) == (RECIPE, None)
    second = Training(RECIPE, adjusted(RECIPES[RECIPE], {}, ["seed=2"]))
    start(second, tmp_path / f"{RECIPE}-seed2")
    assert not runs.finished(tmp_path / f"{RECIPE}-seed2")
    for name in (f"{RECIPE}-seed1", RECIPE):
        start(second, tmp_path / name)
        with pytest.raises(UserError, match="other settings than the recipe"):
            runs.finished(tmp_path / name)


def test_what_is_missing_is_trained_and_what_is_begun_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from orgthink.recipes.registry import RECIPES, Training, start

    told: list[tuple[str, ...]] = []

    def train(*arguments: str) -> None:
        told.append(arguments)
        run = Path(arguments[-1])
        if "--resume" not in arguments:
            job = RECIPES[run.name]
            model = arguments[arguments.index("--model") + 1] if "--model" in arguments else job.model
            RunFolder.create(run, "train", Training(run.name, replace(job, model=model)))
        (run / "checkpoints" / f"step-{RECIPES[run.name].steps:06d}").mkdir(parents=True)

    monkeypatch.setattr(runs, "run_orgthink", train)
    begun, base, from_base = "asyncthink-countdown-mini-sequential", RECIPE, "asyncthink-countdown-mini-no-sft"
    start(Training(begun, RECIPES[begun]), tmp_path / begun)
    for _ in range(2):
        runs.train_missing(tmp_path, [begun, base, from_base], {from_base: base})
    model = tmp_path / base / "checkpoints" / f"step-{RECIPES[base].steps:06d}" / "model"
    of_base = ("train", base, "--out", str(tmp_path / base))
    after = ("train", from_base, "--model", str(model), "--out", str(tmp_path / from_base))
    assert set(told) == {("train", "--resume", str(tmp_path / begun)), of_base, after} and len(told) == 3
    assert told.index(of_base) < told.index(after), "a base comes before the runs that start from it"
    with pytest.raises(UserError, match="not finished"):
        monkeypatch.setattr(runs, "run_orgthink", lambda *arguments: told.append(arguments))
        runs.train_missing(tmp_path, [f"{RECIPE}-seed3"])
    assert told[-1] == ("train", RECIPE, "--seed", "3", "--out", str(tmp_path / f"{RECIPE}-seed3"))


def test_two_trainings_run_at_once_and_none_begins_after_one_that_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    both, told = Barrier(2, timeout=60), list[str]()

    def train(*arguments: str) -> None:
        told.append(arguments[1])
        both.wait()
        raise UserError(f"{arguments[1]} failed")

    monkeypatch.setattr(runs, "run_orgthink", train)
    names = [RECIPE, "asyncthink-countdown-mini-sequential", "asyncthink-countdown-mini-no-sft"]
    with pytest.raises(UserError, match="failed"):
        runs.train_missing(tmp_path, names, {names[2]: RECIPE})
    assert sorted(told) == sorted(names[:2])


@dataclass(frozen=True)
class Needed:
    """A thing to evaluate."""

    model: str


@dataclass
class Shared:
    """A laboratory in which every fourth model is not trained."""

    done: list[str] = field(default_factory=list)

    def needed(self) -> list[Needed]:
        return [Needed(f"model-{i}") for i in range(10)]

    def ready(self, setting: Needed) -> bool:
        return int(setting.model[6:]) % 4 > 0

    async def attempts(self, setting: Needed) -> None:
        self.done.append(setting.model)


@pytest.mark.parametrize("parts", [1, 2, 3, 12])
async def test_shares_are_everything_that_is_trained_and_never_meet(parts: int, capsys: pytest.CaptureFixture[str]):
    labs = [Shared() for _ in range(parts)]
    for i, lab in enumerate(labs):
        await evaluate_share(lab, *share(f"{i}/{parts}"))
    assert sorted(model for lab in labs for model in lab.done) == [f"model-{i}" for i in range(10) if i % 4]
    assert sorted(line.split()[0] for line in capsys.readouterr().out.splitlines()) == ["model-0", "model-4", "model-8"]


def test_trainings_that_arenas_share_are_added_up_once() -> None:
    def results(**runs: float) -> dict[str, Any]:
        conditions = {"hardware": {"cpu": "Intel(R) Xeon(R) Processor", "cores": 1}, "commit": "abc"}
        trained = [{"run": run, "seconds": 60 * minutes} for run, minutes in runs.items()]
        return {"preparations": trained, "conditions": conditions}

    arenas = {"first": results(a=10, b=7), "second": results(b=20), "third": results(c=40)}
    found = times_table(arenas, ("first", "second"))
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in found.splitlines()[-4:]]
    assert rows[0] == ["[first](first/README.md)", "yes", "2", "17", "Intel Xeon, 1 core", "`abc`"]
    assert [row[1] for row in rows[:3]] == ["yes", "yes", "no"]
    assert rows[3][2:4] == ["2", "17"], "b once, as the first arena has it; c not at all"

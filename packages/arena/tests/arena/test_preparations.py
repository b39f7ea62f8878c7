"""Preparations of an arena: done once, gone on with where they stopped, and counted."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from contestants import HERE, arena_file
from orgthink_arena.contest.config import Arena, Method, Preparation, read_arena
from orgthink_arena.contest.preparations import Prepared, costs_in, given_settings, prepare, prepare_all
from orgthink_arena.searches.costs import Costs

from orgthink.record.folder import RunFolder
from orgthink.training.recipes.registry import RECIPES, Training, start, training_of
from orgthink.util.errors import UserError


def guesses(folder: Path, **settings: object) -> Arena:
    return replace(
        read_arena(arena_file(folder)), preparations={"guess": Preparation(f"{HERE}:GUESS", settings=dict(settings))}
    )


def test_what_was_stopped_goes_on_and_what_is_done_is_left_alone(tmp_path: Path) -> None:
    arena = guesses(tmp_path, steps=3)
    folder = tmp_path / "preparations" / "guess-seed1"
    first = prepare(tmp_path, arena, "guess", 1)
    assert json.loads((folder / "memory.json").read_text()) == [1, 1, 1] and first.costs.sampled_tokens == 600
    before = {file: file.stat().st_mtime_ns for file in folder.iterdir()}
    assert prepare(tmp_path, arena, "guess", 1) == first
    assert {file: file.stat().st_mtime_ns for file in folder.iterdir()} == before, "nothing was done again"
    (folder / "prepared.json").unlink()  # as if it had been killed in its last step
    (folder / "memory.json").write_text("[1, 1]")
    assert prepare(tmp_path, arena, "guess", 1).costs.sampled_tokens == 800, "only the missing step, and it is counted"


def test_a_run_of_other_settings_is_refused(tmp_path: Path) -> None:
    prepare(tmp_path, guesses(tmp_path, steps=1), "guess", 0)
    with pytest.raises(UserError, match="other settings"):
        prepare(tmp_path, guesses(tmp_path, steps=2), "guess", 0)


def test_one_that_comes_after_another_starts_from_its_result_of_the_same_seed(tmp_path: Path) -> None:
    first, second = Preparation(f"{HERE}:GUESS"), Preparation(f"{HERE}:GUESS", {"steps": 1}, after="first")
    methods = {"asking": Method("sequential", prepared={"prompts": "second"})}
    arena = replace(
        guesses(tmp_path), preparations={"second": second, "first": first}, methods=methods, reference="asking"
    )
    found = prepare_all(tmp_path, arena, methods)
    assert list(found) == [("first", 0), ("first", 1), ("second", 0), ("second", 1)]
    for seed in (0, 1):
        made, before = found["second", seed], found["first", seed]
        assert isinstance(made, Prepared) and isinstance(before, Prepared)
        assert getattr(training_of(RunFolder.open(made.folder)).job, "model", None) == str(before.result)
    with pytest.raises(ValueError, match="comes after itself"):
        replace(arena, preparations={"first": replace(first, after="second"), "second": second})
    with pytest.raises(UserError, match="unknown preparation 'frist': did you mean first"):
        replace(arena, preparations={"first": first, "second": replace(second, after="frist")})
    with pytest.raises(ValueError, match="first has a run for each seed, so second"):
        replace(arena, preparations={"first": first, "second": replace(second, seeded=False)})
    with pytest.raises(ValueError, match="name one of both"):
        replace(second, model="pocket-base")


def test_a_failure_is_told_and_the_others_go_on(tmp_path: Path) -> None:
    arena = guesses(tmp_path)
    methods = arena.methods | {"lost": Method("sequential", prepared={"prompts": "hopeless"})}
    preparations = {"hopeless": Preparation(f"{HERE}:GUESS", {"fails": True}), **arena.preparations}
    found = prepare_all(tmp_path, replace(arena, methods=methods, preparations=preparations), methods)
    assert found["hopeless", 0] == found["hopeless", 1] == "nothing to be found"
    assert not isinstance(found["guess", 0], str)


def test_a_result_is_passed_by_its_path_and_must_be_there(tmp_path: Path) -> None:
    made = prepare(tmp_path, guesses(tmp_path), "guess", 0)
    whole = Method("sequential", prepared={"prompts": "guess/memory.json"})
    assert given_settings(whole, {"guess": made}) == {"prompts": str((made.folder / "memory.json").resolve())}
    for place, source, complaint in (
        ("prompts", "guess/other.json", "has made no other.json"),
        ("model", "guess/memory.json", "not a model folder"),
    ):
        with pytest.raises(UserError, match=complaint):
            given_settings(replace(whole, prepared={place: source}), {"guess": made})


def test_what_a_training_sampled_is_in_its_metrics(tmp_path: Path) -> None:
    """Of groups of so many episodes each, `sampled_tokens` is the mean of an episode."""
    recipe = "asyncthink-qwen3-countdown"
    job = RECIPES[recipe]
    job = replace(job, model="x", settings=replace(job.settings, rollout=replace(job.settings.rollout, group=8)))
    folder = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(job), "require", lambda self: None)
        start(Training(recipe, job), folder)
    lines = [
        {
            "step": 1,
            "sampled_tokens": 10.5,
            "drawn_groups": 2,
            "cost_units": 1.5,
            "seconds": {"rollout": 2, "train": 1},
        },
        {"step": 2, "sampled_tokens": 20.0, "drawn_groups": 1, "cost_units": 1.0, "seconds": {"rollout": 4}},
    ]
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert costs_in(folder) == Costs(24, 168 + 160, 0, 32.0, 7.0)
    (folder / "metrics.jsonl").write_text('{"step": 1, "sampled_tokens": 900, "seconds": 2.5}\n')
    assert costs_in(folder).sampled_tokens == 900, "without groups it is that of the whole step"


def test_what_comes_after_a_failure_fails_with_it_and_runs_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arena = replace(guesses(tmp_path), seeds=(0,))
    later = {name: Preparation(f"{HERE}:GUESS", after="hopeless") for name in ("one", "two")}
    preparations = {"hopeless": Preparation(f"{HERE}:GUESS", {"fails": True}), **later}
    methods = {"asking": Method("sequential", prepared={"roles.a": "one", "roles.b": "two"})}
    arena = replace(arena, preparations=preparations, methods=methods, reference="asking")
    found = prepare_all(tmp_path, arena, methods)
    assert found == {(name, 0): "nothing to be found" for name in preparations}
    assert [path.name for path in (tmp_path / "preparations").iterdir()] == ["hopeless-seed0"]
    said = capsys.readouterr()
    assert said.out.count("steps: 2 …") == 1 and said.err.count("nothing to be found") == 1

"""Chains that are saved in the middle of a segment, runs that are killed, and requests that cannot be met."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from echo import TASK
from mars_words import Habits, WordEngine, problems_file, stepped
from safetensors.torch import load_file
from terse import TERSE
from test_sft import ctrl_c_inside
from tiny_policy import TINY
from tiny_recipes import named

from orgthink.cli import main
from orgthink.engines.local.engine import LocalEngine
from orgthink.models.decoder import Decoder
from orgthink.record.episode import Episode, StopReason
from orgthink.record.episode_json import dump
from orgthink.record.folder import RunFolder
from orgthink.training import checkpoint
from orgthink.training.backend import EmbeddedBackend
from orgthink.training.marsrl.pipeline import Pipeline
from orgthink.training.marsrl.settings import MarsRollout, MarsSettings
from orgthink.util.errors import UserError

pytestmark = pytest.mark.usefixtures("tiny_policy")

ROLLOUT = MarsRollout(TASK, TERSE, max_tokens=64, segment=24, temperature=1.5, problems=3, group=4)
SETTINGS = MarsSettings(ROLLOUT, steps=5, learning_rate=1e-3, warmup=1, minibatches=2, save_every=1)


@pytest.fixture
def settings(tmp_path: Path) -> MarsSettings:
    task = problems_file(tmp_path, *range(7, 30))
    plan = MarsRollout(task, TERSE, max_tokens=14, segment=5, problems=2, group=4)
    return MarsSettings(plan, steps=1, learning_rate=1e-3)


def episodes(chains: Pipeline) -> list[Episode]:
    """Those under way."""
    return list(chains._chains)


# Chains on the disk


@pytest.mark.parametrize("ticks", [0, 5])
def test_what_is_under_way_is_saved_as_it_is_and_goes_on_as_if_it_had_not_been(settings, tmp_path, ticks):
    habits = Habits(solves=0.3, accuses=0.7, spellings=50)
    chains, again = Pipeline(settings), Pipeline(settings)
    stepped(chains, WordEngine(habits), ticks)
    chains.snapshot()(tmp_path)
    again.load(tmp_path)
    assert episodes(again) == episodes(chains) and again._begun == chains._begun
    if ticks:
        outputs = [trace for episode in episodes(again) for trace in episode.traces[1:]]
        assert any(t.steps and t.stop is StopReason.LENGTH for t in outputs), "some are in the middle"
        assert any(t.stop is StopReason.DONE for t in outputs)
    one, other = (stepped(source, WordEngine(habits), 4, ticks) for source in (chains, again))
    assert [batch.rows for batch in one] == [batch.rows for batch in other]
    assert sum(len(batch.rows) for batch in one) > 0


@pytest.mark.parametrize(
    "damage",
    [
        lambda file: file.write_bytes(file.read_bytes()[:-20]),
        lambda file: file.write_bytes(b"\xff" + file.read_bytes()),
        lambda file: file.write_text('{"begun": 2}'),
        lambda file: file.write_text(file.read_text().replace('"stop": "length"', '"stop": "perhaps"')),
        lambda file: file.unlink(),
    ],
)
def test_torn_chains_are_one_line_that_names_the_file(settings, tmp_path, damage):
    chains = Pipeline(settings)
    stepped(chains, WordEngine(Habits()), 2)
    chains.snapshot()(tmp_path)
    damage(tmp_path / "chains.json")
    with pytest.raises(UserError, match=r"chains\.json") as caught:
        Pipeline(settings).load(tmp_path)
    assert "\n" not in str(caught.value) and str(caught.value).count("chains.json:") <= 1


# Whole runs


def backend() -> EmbeddedBackend:
    return EmbeddedBackend(Decoder.load(TINY), LocalEngine.open(TINY, threaded=False), TINY)


def metrics(run: Path) -> list[dict[str, Any]]:
    """Without the seconds, which alone may differ between equal runs."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "seconds"} for line in lines]


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(checkpoint.saved(run)[-1] / "model" / "model.safetensors")


def same(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)


def test_a_run_that_is_stopped_at_once_goes_on_to_the_bit_with_segments_under_way(tmp_path):
    """Stopped at once inside an update, where nothing is saved; then resumed."""
    cut, whole = tmp_path / "cut", tmp_path / "whole"
    command = ["train", RECIPE, "--model", str(TINY), "--device", "cpu", "--out"]
    with ctrl_c_inside(4, times=2):
        assert main([*command, str(cut)]) == 130
    saved = checkpoint.saved(cut)[-1]
    assert checkpoint.state(saved)["step"] < 5
    outputs = [trace for chain in underway(saved) for trace in chain["traces"]]
    assert any(trace["turns"] and trace["stop"] == "length" for trace in outputs), "segments were under way"

    assert main(["train", "--resume", str(cut)]) == 0
    assert main([*command, str(whole)]) == 0
    assert [line["step"] for line in metrics(whole)] == [1, 2, 3, 4, 5]
    assert metrics(cut) == metrics(whole)
    assert same(weights(cut), weights(whole))
    assert not same(weights(whole), load_file(TINY / "model.safetensors")), "something was learned"
    assert max(line["age_max"] or 0 for line in metrics(whole)) > 0
    assert timeless(underway(checkpoint.saved(cut)[-1])) == timeless(underway(checkpoint.saved(whole)[-1]))
    records = [[timeless(json.loads(dump(e))) for e in RunFolder.open(run).episodes()] for run in (cut, whole)]
    assert records[0] == records[1] and len({one["id"] for one in records[0]}) == len(records[0]) > 5


def underway(saved: Path) -> Any:
    """Chains in a checkpoint."""
    return json.loads((saved / "chains.json").read_text())["chains"]


def timeless(value: Any) -> Any:
    """JSON values without what a clock says."""
    if isinstance(value, dict):
        return {name: timeless(one) for name, one in value.items() if name not in ("start", "end", "seconds")}
    return [timeless(one) for one in value] if isinstance(value, list) else value


# Requests that cannot be met


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"group": 1}, "group is 1"),
        ({"take": 3, "strategy": "balanced"}, "take is 3: balanced sampling"),
        ({"take": 0}, "take is 0"),
        ({"problems": 0}, "problems is 0"),
        ({"max_tokens": 0}, "max_tokens is 0"),
        ({"max_input": 0}, "max_input is 0"),
        ({"segment": 65}, "segment is 65: it must be from 1 to max_tokens, 64"),
        ({"segment": 0}, "segment is 0"),
        ({"temperature": 0.0}, "temperature is 0"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"live": 3}, "live is 3: it must be at least group, 4"),
        ({"roles": ()}, "name one or more of solver, verifier, corrector"),
        ({"roles": ("solver", "solver")}, "each once"),
    ],
)
def test_a_rollout_that_cannot_be_says_why(changes, words):
    with pytest.raises(ValueError, match=words) as caught:
        replace(ROLLOUT, **changes)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("changes", "fits"), [({}, True), ({"max_input": 960}, True), ({"max_input": 961}, False)])
def test_inputs_and_outputs_fit_the_models_context_together(changes, fits):
    settings = replace(SETTINGS, rollout=replace(ROLLOUT, **changes))
    settings.require(None)
    if fits:
        settings.require(1024)
    else:
        with pytest.raises(UserError, match=r"context of 1024: lower rollout\.max_input or rollout\.max_tokens"):
            settings.require(1024)


RECIPE = named("MARSRL")

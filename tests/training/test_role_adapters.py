"""An adapter for each role over one base: trained by the rows of its role only, resumed to the bit, opened again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from architectures import tiny
from echo import TASK
from plain_policy import policy, random_rows
from safetensors.torch import load_file
from terse import TERSE
from test_sft import ctrl_c_inside
from tiny_policy import TINY
from tiny_recipes import MARSRL, named
from torch import Tensor

from orgthink import evaluate
from orgthink.cli import main
from orgthink.engines import engine_spec
from orgthink.engines.local.engine import LocalEngine
from orgthink.engines.scripted import ScriptedEngine
from orgthink.models.decoder import Decoder
from orgthink.models.lora import LoraSettings
from orgthink.models.trainable import open_trainable
from orgthink.training import checkpoint
from orgthink.training.backend import EmbeddedBackend
from orgthink.training.packing import packs
from orgthink.training.policy_loss import PolicyLoss, weighted
from orgthink.training.rows import PolicyRow, policy_rows
from orgthink.util.errors import UserError

pytestmark = pytest.mark.usefixtures("tiny_policy")

ROLES = ("solver", "verifier", "corrector")
LORA = LoraSettings(4)


def opened(folder: Path, roles: tuple[str, ...] = ROLES) -> Decoder:
    """A model whose adapters change it, each in its own way."""
    model = open_trainable(folder, LORA, roles=roles)
    assert isinstance(model, Decoder)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.requires_grad:
                weight.add_(torch.randn(weight.shape, generator=generator) * 0.05)
    return model


def backend_of(model: Decoder) -> EmbeddedBackend:
    return EmbeddedBackend(model, ScriptedEngine([]), TINY, pack_tokens=100)


def rows_of(*roles: str) -> list[PolicyRow]:
    """Each row is there for every role, so that all its tokens could be shared."""
    return [replace(row, role=role, agent=role) for row in random_rows(policy()) for role in roles]


def gradients(model: Decoder, place: str) -> list[Tensor | None]:
    return [weight.grad for adapter in model.adapters[place] for weight in adapter.parameters()]


# Gradients


@pytest.mark.numerical
def test_an_adapter_gets_the_gradient_of_the_rows_of_its_role(tmp_path):
    model = opened(TINY)
    backend = backend_of(model)
    rows = rows_of("solver", "verifier")
    rows = [replace(row, logprobs=now) for row, now in zip(rows, backend.logprobs(rows), strict=True)]
    assert rows[0].logprobs != pytest.approx(rows[1].logprobs, abs=1e-2), "the same tokens by different adapters"
    rows = weighted([replace(row, advantage=row.advantage + i % 2) for i, row in enumerate(rows)], "token-mean")
    assert backend.forward_backward(rows, PolicyLoss()).largest < 1e-4
    model.save(tmp_path)
    for role in ("solver", "verifier"):
        single = open_trainable(TINY, LORA)
        single.restore_adapter(tmp_path / "adapter" / role)
        backend_of(single).forward_backward([row for row in rows if row.role == role], PolicyLoss())
        for found, wanted in zip(gradients(model, f"adapter/{role}"), gradients(single, "adapter"), strict=True):
            torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-6)
    assert not any(weight is not None for weight in gradients(model, "adapter/corrector"))
    before = [weight.clone() for weight in model.parameters()]
    backend.optim_step(1e-2, 1.0)
    moved = [name for (name, now), old in zip(model.named_parameters(), before, strict=True) if not now.equal(old)]
    assert {name.split(".adapter.")[1].partition(".")[0] for name in moved} == {"solver", "verifier"}


def test_a_pack_has_rows_of_one_role():
    rows = rows_of(*ROLES)
    for beside in (1, 2):
        found = packs(rows, 200, beside, lambda row: row.role)
        assert sorted(place for pack in found for place in pack.places) == list(range(len(rows)))
        assert {len({row.role for row in pack.rows}) for pack in found} == {1}
        assert len(found) % beside == 0


def test_a_row_of_a_role_without_an_adapter_is_named():
    rows = [replace(row, episode="e") for row in rows_of("thinker")]
    with pytest.raises(UserError, match="episode e, thinker: role thinker has no adapter, only solver, verifier"):
        backend_of(opened(TINY)).forward_backward(rows, PolicyLoss())


# Runs


def metrics(run: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "seconds"} for line in lines]


def weights(model: Path) -> dict[str, dict[str, Tensor]]:
    return {role: load_file(model / "adapter" / role / "adapter_model.safetensors") for role in ROLES}


def same(first: Any, second: Any) -> bool:
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same(first[name], second[name]) for name in first)
    return torch.equal(first, second) if isinstance(first, Tensor) else first == second


def test_a_run_resumes_to_the_bit_and_its_checkpoint_opens(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    cut, whole = tmp_path / "cut", tmp_path / "whole"
    options = ["train", named("MARSRL"), "--model", str(TINY), "--device", "cpu", "--lora", "4", "--set"]
    options += ["adapters=roles", "steps=5", "rollout.segment=none", "learning_rate=0.01", "--out"]
    with ctrl_c_inside(3, times=2):
        assert main([*options, str(cut)]) == 130
    assert checkpoint.state(checkpoint.saved(cut)[-1])["step"] < 5
    assert main(["train", "--resume", str(cut)]) == 0
    assert main([*options, str(whole)]) == 0
    assert metrics(cut) == metrics(whole) and len(metrics(whole)) == 5
    assert all(line["logprob_difference_max"] < 1e-4 for line in metrics(whole)), "each role samples by its adapter"
    last, other = (checkpoint.saved(run)[-1] for run in (whole, cut))
    assert same(weights(last / "model"), weights(other / "model"))
    assert same(*(torch.load(each / "trainer.pt", weights_only=True) for each in (last, other)))
    assert same(load_file(last / "model" / "model.safetensors"), load_file(TINY / "model.safetensors"))
    for role in ROLES:
        moved = [name for name, weight in weights(last / "model")[role].items() if "lora_B" in name and weight.any()]
        assert moved, f"{role} has learned"

    opened_folders = []
    monkeypatch.setattr(LocalEngine, "open", _counted(LocalEngine.open, opened_folders))
    run = evaluate(TASK, "verifier-corrector", model=str(last / "model"), prompts=TERSE, n=3, out=tmp_path / "eval")
    assert len(opened_folders) == 1, "the base is opened once"
    traces = [trace for episode in run.episodes for trace in episode.traces if trace.model is not None]
    assert {trace.role: trace.model for trace in traces} == {role: f"model/{role}" for role in ROLES}
    backend = backend_of(open_trainable(last / "model", LORA, roles=ROLES))
    backend.load(last)
    rows = [row for episode in run.episodes for row in policy_rows(episode, 1.0)]
    off = [
        max(abs(a - b) for a, b in zip(row.logprobs, now, strict=True))
        for row, now in zip(rows, backend.logprobs(rows), strict=True)
    ]
    assert max(off) < 1e-4
    with pytest.raises(UserError, match="has adapters of roles: go on with --resume RUN, or name their base"):
        replace(MARSRL, model=str(last / "model"), device="cpu").require()
    with pytest.raises(UserError, match="has adapters of roles: open it without vllm:"):
        engine_spec(f"vllm:{last / 'model'}")
    one = engine_spec(str(last / "model" / "adapter" / "verifier"))
    assert "adapters" not in one.preset_values and one.preset_values["max_tokens"] == 16


def _counted(function: Any, calls: list[Any]) -> Any:
    def counted(*args: Any, **settings: Any) -> Any:
        calls.append(args)
        return function(*args, **settings)

    return counted


# Opening


@pytest.mark.numerical
def test_peft_opens_the_adapter_of_a_role(tmp_path, monkeypatch):
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    base = tiny(tmp_path / "base")
    model = opened(base)
    (tmp_path / "trained").mkdir()
    model.save(tmp_path / "trained")
    theirs = PeftModel.from_pretrained(
        AutoModelForCausalLM.from_pretrained(base), tmp_path / "trained" / "adapter" / "solver", adapter_name="solver"
    )
    theirs.load_adapter(tmp_path / "trained" / "adapter" / "verifier", adapter_name="verifier")
    ids = torch.arange(3, 12)[None]
    for role in ("solver", "verifier"):
        theirs.set_adapter(role)
        model.use(role)
        with torch.no_grad():
            torch.testing.assert_close(theirs(ids).logits, model(ids), rtol=0, atol=1e-5)
    merged = engine_spec(str(tmp_path / "trained" / "adapter" / "verifier")).folder
    assert merged is not None
    with torch.no_grad():
        torch.testing.assert_close(Decoder.load(merged)(ids), model(ids), rtol=0, atol=1e-5)


def test_what_has_no_adapters_of_roles_is_one_line(tmp_path):
    job = replace(MARSRL, model=str(TINY), device="cpu", adapters="roles")
    for wrong in (job, replace(job, lora=LORA, sampler="vllm")):
        with pytest.raises(UserError, match="adapters=roles needs --lora RANK and sampler=local"):
            wrong.require()
    replace(job, lora=LORA).require()
    for role in ("fact.checker", "fact/checker"):
        rollout = job.settings.rollout
        bad = replace(job, lora=LORA, settings=replace(job.settings, rollout=replace(rollout, roles=(role,))))
        with pytest.raises(UserError, match=f"the role '{role}' names a folder: letters, digits, _ and - only"):
            bad.require()
    with pytest.raises(UserError, match="transformers computes this architecture, with one adapter for all roles"):
        open_trainable(tiny(tmp_path, "GPTNeoX"), LORA, roles=ROLES)

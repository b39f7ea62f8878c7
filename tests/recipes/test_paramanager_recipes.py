"""ParaManager's own recipes: the numbers of Tables 4 and 5, what a dry run says, and a step of each on a tiny model."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from dictated import Dictated
from engines.models import tiny_model
from loopback import MODEL, Exchange, Server, loopback, says
from managed_runs import managed, recorded
from random_model import write_random_model
from terse import TERSE

from orgthink.cli import main
from orgthink.grammar.toolcall import ToolCall, render_reply
from orgthink.models.trainable import open_trainable
from orgthink.record.folder import RunFolder
from orgthink.rewards.paramanager import ParaManagerReward
from orgthink.training.backend import EmbeddedBackend
from orgthink.training.cluster.sizing.model import QWEN3_4B
from orgthink.training.recipes.jobs import Policy
from orgthink.training.recipes.papers import PAPER_POOL
from orgthink.training.recipes.registry import RECIPES, Training, adjusted, unnamed
from orgthink.training.rl import train_policy
from orgthink.util.errors import UserError

FROZEN = [*PAPER_POOL, "summarizer"]
SMALL = replace(
    QWEN3_4B,
    vocab_size=400,
    hidden_size=32,
    intermediate_size=48,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=32,
)


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    """Problems that name their answer."""
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps({"problem": n, "answer": n}) + "\n" for n in (7, 12, 5)))
    return file


def policy(*given: str) -> Policy:
    job = adjusted(RECIPES["paramanager-qwen3"], {}, given)
    assert isinstance(job, Policy)
    return job


def test_the_numbers_of_table_5():
    job = policy()
    settings, plan = job.settings, job.settings.rollout
    assert (settings.steps, settings.minibatches, plan.problems, plan.group, plan.temperature) == (50, 2, 16, 8, 1.0)
    assert {settings.rate(step) for step in range(50)} == {2e-6}, "constant, from the first step on"
    loss = settings.loss
    assert (loss.clip_low, loss.clip_high, loss.kl, loss.ratio, loss.reduction) == (
        0.2, 0.28, 0.0, "sequence", "episode-mean",
    )  # fmt: skip
    assert loss.old == "trainer", "vLLM's log-probabilities are not the trainer's, and a row of 24,576 adds them up"
    assert settings.reward == ParaManagerReward(theta_par=1.25, theta_tool=3, length_target=12_288, cost_target=8)
    assert settings.mixed and settings.credit.normalise == "std" and settings.credit.delta > 0
    manager = plan.organization.named("paramanager")
    assert (manager.rounds, manager.calls, manager.response_tokens) == (12, 4, 4096)
    assert (manager.synthesis, next(iter(manager.pool))) == ("summarizer", "gpt-oss-20b")
    assert plan.models["summarizer"] == plan.models["gpt-oss-20b"], "one engine"
    assert {model.sampling.max_tokens for model in plan.models.values()} == {plan.limits.max_tokens} == {24_576}
    assert manager.call_seconds is None, "a call may take as long as its tokens"
    assert job.sampler_settings["max_model_len"] == 24_576 + 24_576
    assert plan.roles == ("manager",) and job.model is None


def test_a_dry_run_needs_no_model_and_no_server(rows, tmp_path, capsys):
    given = ["train", "paramanager-qwen3", "--dry-run", "--out", str(tmp_path / "new"), "--set"]
    assert main([*given, f"rollout.task=math:{rows}", "rollout.problems=3"]) == 0
    out, err = capsys.readouterr()
    seen = json.loads(out)
    assert seen["unnamed"] == ["--model"] and seen["bounds"]["episodes_a_step"] == 3 * 8
    assert set(seen["job"]["settings"]["rollout"]["models"]) == set(FROZEN)
    assert "needs --model" in err and err.count("\n") == 1
    for wrong, words in (
        (["rollout.task=math"], "math:FILE"),
        (["rollout.organization.settings.rounds=0"], "rounds is 0"),
        (["rollout.models.gpt-oss-20b.engine.url=none"], "the model of gpt-oss-20b cannot be used"),
        (["rollout.models.gpt-oss-20b.sampling.top_p=2"], "top_p is 2"),
        (["loss.reduction=token-mean"], "episode-mean"),
    ):
        assert main([*given, f"rollout.task=math:{rows}", *wrong]) == 2
        out, err = capsys.readouterr()
        assert not out and words in err and err.count("\n") == 1
    assert not (tmp_path / "new").exists()


def test_other_places_of_the_pool_are_named_by_set(rows, tmp_path):
    here = tiny_model(tmp_path / "here")
    urls = {name: f"https://host-{n}.example/v1" for n, name in enumerate(FROZEN)}
    job = policy(
        f"rollout.task=math:{rows}",
        "rollout.problems=3",
        *(f"rollout.models.{n}.engine.url={url}" for n, url in urls.items()),
    )
    assert unnamed(job) == ["--model"]
    assert {name: model.engine.url for name, model in job.settings.rollout.models.items()} == urls
    engine = "rollout.models.qwen3-30b-a3b.engine"
    local = adjusted(job, {}, [f"{engine}.url=none", f"{engine}.model={here}"])
    assert unnamed(local) == ["--model"]  # a folder, or a shipped model, will do as well
    with pytest.raises(UserError, match=r"gpt-5\.sampling: Field required"):
        policy("rollout.models.gpt-5.engine.url=https://host/v1")


def test_a_step_of_supervised_fine_tuning(tmp_path, capsys):
    folder = write_random_model(tmp_path / "model", SMALL, layers=2)
    recorded(tmp_path / "episodes", managed(None))
    given = ["train", "paramanager-qwen3-sft", "--model", str(folder), "--episodes", str(tmp_path / "episodes")]
    assert main([*given, "--steps", "1", "--set", "batch_rows=2", "--out", str(tmp_path / "run")]) == 0
    (line,) = map(json.loads, (tmp_path / "run" / "metrics.jsonl").read_text().splitlines())
    assert 0 < line["loss"] < 10 and line["gradient_norm"] > 0 and line["learning_rate"] == 1e-5
    assert "trajectories are selected" in capsys.readouterr().out


# A step of reinforcement learning, on a pool behind a real server.


def managing(seen: str, luck: Random) -> str:
    """A few calls at first, then the end; each in its own words, so that samples differ."""
    if "<tool_response>" in seen:
        return render_reply("enough", [ToolCall("final_answer", {})])
    asked = [ToolCall("standard_reasoner", {"model_id": model}) for model in PAPER_POOL]
    others = [ToolCall("ensemble_solver", {}), ToolCall("search", {"query_list": ["Mira"]})]
    return render_reply("split", luck.sample([*asked, *others], luck.randint(1, 4)))


async def member(exchange: Exchange) -> None:
    """A model of the pool solves a problem; the one who writes the answer may spoil it."""
    answer = int(re.findall(r"\d+", exchange.shown)[-1])
    wrong = "summary" in exchange.shown and Random(exchange.body["seed"]).random() < 0.5
    await says(f"it is <ANSWER> {answer + wrong} </ANSWER>")(exchange)


@contextmanager
def pool() -> Iterator[Server]:
    """A server in a thread of its own: training has the event loop."""
    ready, found, loop = threading.Event(), [], asyncio.new_event_loop()
    over = asyncio.Event()

    async def serve() -> None:
        async with loopback(*[member] * 2000) as server:
            found.append(server)
            ready.set()
            await over.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    ready.wait()
    try:
        yield found[0]
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join()
        loop.close()


@pytest.mark.thorough
def test_steps_of_reinforcement_learning_beside_a_pool_on_a_server(rows, tmp_path):
    """The recipe in tiny numbers and short prompts: calls go to the server, only the manager is trained, and the ratio
    of a sequence moves its weights without a drift between the sampler and the trainer."""
    folder = write_random_model(tmp_path / "model", SMALL, layers=2, dtype="float32")
    small = ("problems=2", "group=4", f"task=math:{rows}", f"organization.settings.prompts={TERSE}")
    given = (*(f"rollout.{one}" for one in small), "steps=3", "drift=1e-4", "learning_rate=1e-3")
    lines: list[dict] = []
    with pool() as server:
        places = [
            f"rollout.models.{name}.engine.{field}" for name in FROZEN for field in (f"url={server.url}", "model=none")
        ]
        (tmp_path / "corpus").mkdir()
        (tmp_path / "corpus" / "people.txt").write_text("Mira lives in Riga.")
        corpus = f"rollout.organization.settings.suite.corpus={tmp_path / 'corpus'}"
        job = adjusted(policy(*given, *places, corpus), {"model": str(folder)}, ())
        sampler = Dictated(folder, tmp_path / "copy", managing)
        backend = EmbeddedBackend(open_trainable(folder), sampler, folder, pack_tokens=job.pack_tokens)
        run = RunFolder.create(tmp_path / "run", "train", Training("paramanager-qwen3", job))
        train_policy(backend, job.source(), job.settings, run, lines.append)
        asked = [exchange.shown for exchange in server.exchanges]
    assert any((line["gradient_norm"] or 0) > 0 for line in lines), [line["mixed_groups"] for line in lines]
    assert all(line["groups"] == line["mixed_groups"] for line in lines)
    assert sum("summary" in one for one in asked) == 3 * 2 * 4, "every episode ends with the summarizer"
    assert sum("sequential" in one for one in asked) > 20
    assert all(line["model_shares"] == {MODEL: 1.0} for line in lines), "no call was the policy's"
    assert {line["format_reward"] for line in lines} == {1.0}

"""The shipped models on a few held-out problems, the names of the package on the command line, and injected text."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from orgthink_pocket.recipes import MEMBERS
from orgthink_pocket.shipped import MODELS
from orgthink_pocket.tasks.countdown import COUNTDOWN_MINI
from pocket_solver import solve

from orgthink.cli import main
from orgthink.cli.eval import Eval
from orgthink.engines import EngineSpec, engine_spec, open_engine
from orgthink.grammar.asyncthink import DIALECT
from orgthink.models.tokenizer import Tokenizer
from orgthink.organizations.asyncthink import AsyncThink
from orgthink.organizations.sequential import Sequential

AROUND = DIALECT.around("1")


@pytest.mark.thorough
async def test_one_thinker_with_time_to_finish_solves_most_problems() -> None:
    engine = await open_engine(engine_spec("pocket-base"))
    episodes = await solve(engine, Sequential(prompts="pocket"), 30)
    await engine.aclose()
    assert {episode.problem.data["target"] for episode in episodes} <= COUNTDOWN_MINI.test_targets
    assert sum(episode.grade.all_correct for episode in episodes) >= 21
    assert not any(episode.format_faults for episode in episodes)


async def test_training_raises_what_asyncthink_solves_at_192_tokens() -> None:
    """The share over 100 problems was 23 % for one thinker, 74 % before and 80 % after training."""
    found = {}
    for model, organization in (
        ("pocket-base", Sequential(prompts="pocket")),
        ("pocket-organizer", AsyncThink(prompts="pocket")),
    ):
        engine = await open_engine(engine_spec(model))
        episodes = await solve(engine, organization, 25, capacity=4, tokens=192, temperature=0.7)
        await engine.aclose()
        found[model] = sum(episode.grade.all_correct for episode in episodes)
    assert found["pocket-organizer"] >= found["pocket-base"] + 5


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)


def test_a_model_brings_its_prompts_and_budget(alone: None) -> None:
    plan = Eval(model="pocket-organizer", task="countdown-mini").plan()
    assert (plan.limits.capacity, plan.limits.max_tokens) == (4, 192)
    assert {spec.settings["prompts"] for spec in plan.organizations.values()} == {"pocket"}


def test_a_manager_brings_its_members_and_its_corpus(alone: None) -> None:
    plan = Eval(model="pocket-manager", task="ledger-mini", organizations=("paramanager",)).plan()
    assert plan.organizations["paramanager"].settings["suite"]["corpus"] == "ledger"
    assert {name: (role.engine, role.sampling.max_tokens) for name, role in plan.roles.items()} == {
        name: (role.engine, role.sampling.max_tokens) for name, role in MEMBERS.items()
    }


def test_only_an_unknown_model_goes_to_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://there/v1")
    assert engine_spec("pocket-base").folder == MODELS / "pocket-base"
    assert engine_spec("big-model") == EngineSpec("big-model", "http://there/v1")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("eval --task countdown-mini --model poket-base", "unknown model 'poket-base': did you mean pocket-base?"),
        (
            "run --task countdown-mini --model pocket-base --roles worker=poket-base",
            "unknown model 'poket-base': did you mean pocket-base?",
        ),
        (
            "eval --task countdown-mini --model pocket-base --prompts poket",
            "unknown prompt style 'poket': did you mean pocket?",
        ),
        ("eval --model pocket-base --task countdwn-mini", "unknown task 'countdwn-mini': did you mean countdown-mini?"),
        ("train pockt-base", "unknown recipe 'pockt-base': did you mean pocket-base?"),
        (
            "run --task countdown-mini --model pocket-base --set worker=asyncthink",
            "set --depth 2 or more",
        ),
    ],
)
def test_a_bad_name_gives_one_line(
    alone: None, arguments: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments.split()) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


@pytest.mark.parametrize("folder", sorted(MODELS.iterdir()), ids=lambda folder: folder.name)
def test_injected_text_has_its_usual_ids_and_never_a_special_token(folder: Path) -> None:
    tokenizer, rng = Tokenizer(folder), random.Random(0)
    ordinary = [text for text in tokenizer.texts if text.strip() not in ("<pad>", "<eos>", "<unk>")]
    for _ in range(50):
        text = "".join(rng.choices(ordinary, k=rng.randrange(12)))
        assert tokenizer.injection(text, AROUND) == (text.join(AROUND), tokenizer.encode(text.join(AROUND)))
    (end,) = tokenizer.eos_ids
    text, ids = tokenizer.injection("1 + 2 <eos> 3", AROUND)
    assert text == " 1 + 2 <eos> 3 </JOIN-1>" and end not in ids and end in tokenizer.encode(text)

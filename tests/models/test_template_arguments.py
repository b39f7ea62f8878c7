"""Arguments of chat templates, such as Qwen3's `enable_thinking`, in prompts, engines, runs and trained models."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from loopback import MODEL, loopback, says
from models import tiny_model
from tiny_policy import TINY
from tiny_recipes import TASK, TERSE

from orgthink.cli import main
from orgthink.cli.options import Options
from orgthink.engines import EngineSpec, engine_spec, open_engine
from orgthink.engines.engine import Context
from orgthink.evaluation.plan import Evaluation
from orgthink.models.tokenizer import Tokenizer
from orgthink.record.episode import Message, Sampling
from orgthink.record.folder import RunFolder
from orgthink.util.errors import UserError
from orgthink.util.settings import plain, typed

QWEN3 = """\
{%- if style is not defined %}{% set style = 'plain' %}{% endif %}
{%- for message in messages %}{{ message.content + '\\n' }}{% endfor %}
{%- if add_generation_prompt %}
    {{- 'assistant ' + style + ':' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{ '<think></think>' }}{% endif %}
{%- endif %}
"""
"""In the manner of Qwen3's, with a second argument that has a default."""
ASKED = (Message("user", "hello"),)
THINKS, DOES_NOT = "hello\nassistant plain:", "hello\nassistant plain:<think></think>"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return templated(tiny_model(tmp_path / "model", "bytes"))


def templated(folder: Path) -> Path:
    (folder / "chat_template.jinja").write_text(QWEN3)
    return folder


def options(*given: str, **more: Any) -> EngineSpec:
    return Options(template=given, **more).plan_of("asked", ("sequential",)).engine


# The prompt.


def test_arguments_reach_the_prompt_and_the_later_turns(folder: Path) -> None:
    assert Tokenizer(folder).prompt(ASKED).text == THINKS
    tokenizer = Tokenizer(folder, {"enable_thinking": False, "style": "terse"})
    assert tokenizer.prompt(ASKED).text == "hello\nassistant terse:<think></think>"
    assert tokenizer.turn("go on")[0] == "\ngo on\nassistant terse:<think></think>"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("enable_thinkin", "has no 'enable_thinkin': did you mean enable_thinking?"),
        ("zzz", "has no 'zzz'; it has enable_thinking, style"),
        ("messages", "has no 'messages'"),
        ("raise_exception", "has no 'raise_exception'"),
    ],
)
def test_a_name_that_the_template_does_not_read_is_one_line(folder: Path, name: str, says: str) -> None:
    with pytest.raises(UserError, match=r"the chat template of .*model ") as found:
        Tokenizer(folder, {name: 1})
    assert says in str(found.value)


def test_a_model_without_a_template_takes_none(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no 'enable_thinking'"):
        Tokenizer(tiny_model(tmp_path, "bytes"), {"enable_thinking": False})


def test_the_folder_has_arguments_and_the_given_ones_replace_them(folder: Path) -> None:
    (folder / "orgthink.json").write_text('{"template": {"enable_thinking": false, "style": "terse"}}')
    assert Tokenizer(folder).prompt(ASKED).text == "hello\nassistant terse:<think></think>"
    assert Tokenizer(folder, {"enable_thinking": True}).prompt(ASKED).text == "hello\nassistant terse:"
    assert engine_spec(str(folder)).prompts == "demonstrated", "arguments alone do not mean that it was trained here"
    (folder / "orgthink.json").write_text('{"template": "x"}')
    with pytest.raises(UserError, match=r"orgthink.json"):
        Tokenizer(folder)


# Options, configuration and engines.


@pytest.mark.parametrize("value", ["false", "False"])
async def test_the_option_reaches_the_engine_and_the_configuration(folder: Path, value: str) -> None:
    spec = options(f"enable_thinking={value}", model=str(folder))
    again = typed(EngineSpec, json.loads(json.dumps(plain(spec))), "config.json")
    assert again == spec and again.template == {"enable_thinking": False} and hash(again) == hash(spec)
    engine = await open_engine(again)
    assert engine.prompt(ASKED).text == DOES_NOT
    await engine.aclose()


def test_roles_and_labels_have_arguments_of_their_own(folder: Path) -> None:
    model = {"model": str(folder), "roles": (f"verifier={folder}",)}
    given = ("verifier.enable_thinking=false", "b.style=terse", "style=2")
    organizations, models = ("verifier-corrector", "b=sequential"), (f"b={folder}",)
    plan = Options(template=given, **model).plan_of("asked", organizations, models)
    assert plan.engine.template == {"style": 2}
    assert plan.roles["verifier"].engine.template == {"enable_thinking": False}
    b = plan.organizations["b"].engine
    assert b is not None and b.template == {"style": "terse"}


@pytest.mark.parametrize(
    ("given", "more", "says"),
    [
        ("worker.style=1", {}, "--template worker.…: neither --roles nor --models gives worker a model"),
        ("style", {}, r"--template style: write \[ROLE.\]NAME=VALUE"),
        ("messages=1", {}, "messages of a chat template"),
        ("add_generation_prompt=false", {"model": "m", "url": "http://localhost:1/v1"}, "add_generation_prompt of a"),
        ("style=1", {"model": f"{__file__}:opened:x"}, "opened:x takes no arguments of a chat template"),
    ],
)
def test_bad_arguments_are_one_line(folder: Path, given: str, more: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        options(given, **{"model": str(folder), **more})


async def test_a_server_gets_them_with_every_request(folder: Path) -> None:
    async with loopback(says("one two")) as server:
        spec = options("enable_thinking=false", model=MODEL, url=server.url)
        engine = await open_engine(spec)
        context = Context(ASKED, [engine.prompt(ASKED)])
        assert [chunk async for chunk in engine.stream(context, Sampling(9))]
        await engine.aclose()
    assert [one.body["chat_template_kwargs"] for one in server.exchanges] == [{"enable_thinking": False}]


# Runs and trainings.


@pytest.fixture(scope="module")
def thinking_policy(tiny_policy: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return templated(Path(shutil.copytree(TINY, tmp_path_factory.mktemp("models") / "policy")))


def test_a_run_is_resumed_with_its_arguments(thinking_policy: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    given = ["eval", "--task", TASK, "--n", "2", "--organizations", "sequential", "--model", str(thinking_policy)]
    more = ["--set", f"prompts={TERSE}", "--max-tokens", "8", "--out", str(run)]
    assert main([*given, *more, "--template", "enable_thinking=false"]) == 0
    assert RunFolder.open(run).settings("eval", Evaluation).engine.template == {"enable_thinking": False}
    first, second = (run / "episodes.jsonl").read_text().splitlines(keepends=True)
    (run / "episodes.jsonl").write_text(first)
    assert main(["eval", "--resume", str(run)]) == 0
    prompts = [episode.root.spans[0].text for episode in RunFolder.open(run).episodes()]
    assert len(prompts) == 2 and all(text.endswith("plain:<think></think>") for text in prompts)
    assert json.loads(second)["problem"] != json.loads(first)["problem"]


def trained(run: Path, given: list[str], *more: str) -> dict[str, Any]:
    """The orgthink.json of the model that a training makes."""
    assert main(["train", *given, "--steps", "1", "--out", str(run), "--template", "enable_thinking=false", *more]) == 0
    model = run / "checkpoints/step-000001/model"
    assert Tokenizer(model).prompt(ASKED).text == DOES_NOT
    return json.loads((model / "orgthink.json").read_text())


def test_trained_models_keep_the_arguments(thinking_policy: Path, tmp_path: Path) -> None:
    model = ["--model", str(thinking_policy)]
    small = ("rollout.problems=3", "rollout.group=4", "rollout.max_tokens=24", "rollout.limits.capacity=3")
    style = f"rollout.organization.settings.prompts={TERSE}"
    given = ["asyncthink", *model, "--task", TASK]
    made_for = trained(tmp_path / "rl", given, "--set", *small, style, "learning_rate=1e-3")
    assert made_for["template"] == {"enable_thinking": False} and made_for["capacity"] == 3
    episodes = list(RunFolder.open(tmp_path / "rl").episodes())
    assert episodes and all("<think></think>" in trace.spans[0].text for one in episodes for trace in one.traces)

    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text('{"query": "organizer sequential", "response": "1 + 2"}\n')
    given = ["asyncthink-sft", *model, "--pairs", str(pairs), "--lora", "4"]
    assert trained(tmp_path / "sft", given) == {"template": {"enable_thinking": False}}
    adapter = tmp_path / "sft/checkpoints/step-000001/model/adapter/orgthink.json"
    assert json.loads(adapter.read_text()) == {"template": {"enable_thinking": False}}


def test_a_training_refuses_arguments_before_it_begins(thinking_policy: Path, tmp_path: Path, capsys: Any) -> None:
    for name, complaint in (("enable_thinkin", "did you mean enable_thinking?"), ("tools", "has no 'tools'")):
        given = ["train", "asyncthink", "--model", str(thinking_policy), "--task", TASK, "--template", f"{name}=false"]
        assert main([*given, "--out", str(tmp_path / "run")]) == 2
        seen = capsys.readouterr()
        assert complaint in seen.err and seen.err.count("\n") == 1 and not (tmp_path / "run").exists()

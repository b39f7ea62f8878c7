"""Model folders and checkpoints of a stranger: data, from which no code is run."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from attacks.catalogue import Attack, each
from random_model import write_random_model
from transformers import GPT2Config, GPT2LMHeadModel

from orgthink.cli import main
from orgthink.models.config import DecoderConfig
from orgthink.models.huggingface import HuggingFaceModel
from orgthink.models.trainable import open_decoder, open_trainable
from orgthink.training import checkpoint
from orgthink.util.errors import UserError

pytestmark = pytest.mark.thorough

SHAPE = DecoderConfig(300, 32, 32, 1, 1, 1, 32, 2048)
TEMPLATE = "A chat template of a model folder reaches nothing but the messages, and its failure is one line."
WEIGHTS = "Weights are read as numbers: no code that a model folder names or holds is run."
CHECKPOINT = "A checkpoint is read as numbers and plain values: no code that it holds is run."
PRESET = "A model's `orgthink.json` names what is installed, and nothing else."
REFUSED = "one line, exit code 2"


class Payload:
    """Unpickled, it makes a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.file,)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_random_model(tmp_path / "model", SHAPE, dtype="float32")


def template(does: str, text: str) -> Attack:
    return Attack(does, TEMPLATE, REFUSED, text)


@each(
    template("a chat template that climbs from a list to all classes", "{{ messages.__class__.__mro__[1] }}"),
    template("the globals of a function of Jinja", "{{ cycler.__init__.__globals__.os.system('true') }}"),
    template("a class behind the filter `attr`", "{{ (messages|attr('__class__')).__mro__ }}"),
    template("`format` of a string, called as a value", "{{ ('{0.__class__.__mro__}'.format)(messages) }}"),
    template(
        "`format` of a string behind the filter `attr`", "{{ ('{0.__class__.__mro__}'|attr('format'))(messages) }}"
    ),
    template("a template that reads another file", "{% include '/etc/passwd' %}"),
    template("a template that imports a module", "{% import 'os' as os %}{{ os.getcwd() }}"),
    template("a template that adds to the messages", "{{ messages.append(1) }}"),
    template("a template that changes a message", "{{ messages[0].update(content='') }}"),
    template("a range of a thousand million", "{% for i in range(10**9) %}{% endfor %}"),
    template("a macro that calls itself", "{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}"),
    template("a template that divides by zero", "{{ 1 / 0 }}"),
    template("a template that refuses every message", "{{ raise_exception('never') }}"),
    template("a template that does not end", "{% if true %}"),
    template("brackets nested ten thousand deep in a template", "{{ " + "(" * 10_000 + ")" * 10_000 + " }}"),
    template("a template that compiles to no Python", "{% set __import__.x = 1 %}"),
)
def test_a_template_reaches_nothing(attack: Attack, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "chat_template.jinja").write_text(attack.given)
    assert main(["run", "What?", "--model", str(folder), "--max-tokens", "4"]) == 2
    said = capsys.readouterr()
    assert "chat template" in said.err.splitlines()[-1] and "Traceback" not in said.err


def names_code(folder: Path, trap: Path, model_type: str = "trap") -> None:
    """What a hub's model with code of its own looks like."""
    (folder / "modeling_trap.py").write_text(f"open({str(trap)!r}, 'w')\nclass Trap:\n    pass\n")
    config = json.loads((folder / "config.json").read_text())
    code = {"AutoConfig": "modeling_trap.Trap", "AutoModelForCausalLM": "modeling_trap.Trap"}
    named = {"model_type": model_type, "architectures": ["Trap"], "auto_map": code}
    (folder / "config.json").write_text(json.dumps(config | named))


def only_pickles(folder: Path, trap: Path) -> None:
    for file in folder.glob("*.safetensors*"):
        file.unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Payload(trap)))


def disguised_pickle(folder: Path, trap: Path) -> None:
    for file in folder.glob("*.safetensors"):
        file.write_bytes(pickle.dumps(Payload(trap)))


def pickles_in_the_index(folder: Path, trap: Path) -> None:
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    (folder / "trap.bin").write_bytes(pickle.dumps(Payload(trap)))
    index["weight_map"] = dict.fromkeys(index["weight_map"], "trap.bin")
    for file in folder.glob("*.safetensors"):
        file.unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def names_a_kernel(folder: Path, trap: Path) -> None:
    """Attention of the hub, which transformers would download and run."""
    config = json.loads((folder / "config.json").read_text())
    nested = {"text_config": {"_attn_implementation": "stranger/kernel"}}
    (folder / "config.json").write_text(json.dumps(config | nested))


def has_an_adapter(folder: Path, trap: Path) -> None:
    """An adapter whose configuration names a module that peft imports."""
    names = {"megatron_config": {"a": 1}, "megatron_core": "megatron.trap"}
    config = {"peft_type": "LORA", "r": 2, "target_modules": ["c_attn"], "base_model_name_or_path": str(folder)}
    (folder / "adapter_config.json").write_text(json.dumps(config | names))


def weights(does: str, spoil: Callable[[Path, Path], None], said: str = "has no causal model") -> Attack:
    return Attack(does, WEIGHTS, REFUSED, (spoil, said))


@pytest.fixture
def other_architecture(tmp_path: Path) -> Path:
    """A model folder that our decoder does not compute: transformers opens it."""
    config = GPT2Config(vocab_size=300, n_embd=32, n_layer=1, n_head=2, n_positions=64, bos_token_id=1, eos_token_id=2)
    GPT2LMHeadModel(config).save_pretrained(tmp_path / "gpt2", max_shard_size="20KB")
    assert isinstance(open_decoder(tmp_path / "gpt2"), HuggingFaceModel)
    return tmp_path / "gpt2"


@each(
    weights("a model folder with `auto_map` and code of its own", names_code),
    weights("a model folder with pickled weights alone", only_pickles),
    weights("a pickle called model.safetensors", disguised_pickle),
    weights("an index of weights that points to a pickle", pickles_in_the_index, "must name safetensors"),
    weights("a config that names attention of the hub", names_a_kernel, "names the code"),
    weights("an adapter that names a module", has_an_adapter, "has an adapter"),
)
def test_no_code_is_run_where_transformers_opens(attack: Attack, other_architecture: Path, tmp_path: Path) -> None:
    folder, trap = other_architecture, tmp_path / "trap"
    spoil, said = attack.given
    spoil(folder, trap)
    with pytest.raises(UserError, match=f"{folder}.* {said}"):
        open_decoder(folder, torch.bfloat16)
    assert not trap.exists()


@each(
    weights("pickled weights alone, for the local engine", only_pickles),
    weights("a pickle called model.safetensors, for the local engine", disguised_pickle),
    weights("an index of weights that points to a pickle, for the local engine", pickles_in_the_index),
    weights("an adapter, for the local engine", has_an_adapter),
)
def test_no_code_is_run_where_the_local_engine_opens(
    attack: Attack, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trap = tmp_path / "trap"
    attack.given[0](folder, trap)
    assert main(["run", "What?", "--model", str(folder)]) == 2
    assert str(folder) in capsys.readouterr().err.splitlines()[-1]
    assert not trap.exists()


@each(
    Attack("a model of a known type with `auto_map` and code of its own", WEIGHTS, "opened without the code", "qwen3")
)
def test_a_known_model_is_opened_without_its_code(attack: Attack, folder: Path, tmp_path: Path) -> None:
    names_code(folder, tmp_path / "trap", attack.given)
    assert main(["run", "What?", "--model", str(folder), "--max-tokens", "4"]) == 1  # it opens, and has no answer
    assert not (tmp_path / "trap").exists()


@each(Attack("a checkpoint whose optimizer is a program", CHECKPOINT, REFUSED))
def test_no_code_of_a_checkpoint_is_run(attack: Attack, folder: Path, tmp_path: Path) -> None:
    model = open_trainable(folder)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    (tmp_path / "step" / "model").mkdir(parents=True)
    checkpoint.store(tmp_path / "step", model, optimizer)
    trap = tmp_path / "trap"
    torch.save({"state": Payload(trap), "param_groups": []}, tmp_path / "step" / "trainer.pt")
    with pytest.raises(UserError, match="is not a checkpoint of this training"):
        checkpoint.load(tmp_path / "step", model, optimizer)
    assert not trap.exists()


def preset(does: str, name: str, value: object) -> Attack:
    return Attack(does, PRESET, REFUSED, {name: value})


@each(
    preset("a model's preset whose prompts are a file of code", "prompts", "trap.py:PROMPTS"),
    preset("a model's preset whose organization is a module", "organization", "os.path:join"),
    preset("code deep in the settings of a model's preset", "settings", {"a": [{"b": "trap.py:Trap"}]}),
)
def test_a_preset_names_no_code(
    attack: Attack, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "trap.py").write_text("open('trap', 'w')\n")
    (folder / "orgthink.json").write_text(json.dumps(attack.given))
    assert main(["run", "What?", "--model", str(folder)]) == 2
    assert "names code" in capsys.readouterr().err
    assert not (tmp_path / "trap").exists()

"""Model folders and files of problems from somebody else, or damaged on the way."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attacks.catalogue import Attack, each
from models import tiny_model
from small import TASK
from terse import TERSE

from orgthink.cli import main
from orgthink.models.tokenizer import Tokenizer
from orgthink.util.errors import UserError

pytestmark = pytest.mark.thorough

MODEL = "A model folder that cannot be opened gets one line that names it, before anything is written."
ENDS = "A command never waits for a file of a model that has no end, and never takes all memory for it."

EVAL = ["eval", "--prompts", TERSE, "--organizations", "sequential", "--n", "1", "--max-tokens", "4", "--out", "run"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("whole") / "model", "words")


@pytest.fixture
def model(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A tiny model at `model`; the current folder holds nothing else."""
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copytree(whole, "model"))


def holds(name: str, content: bytes) -> Callable[[Path], object]:
    return lambda model: (model / name).write_bytes(content)


def cut(name: str) -> Callable[[Path], object]:
    return lambda model: os.truncate(model / name, (model / name).stat().st_size // 2)


def piped(name: str) -> Callable[[Path], object]:
    def make(model: Path) -> None:
        (model / name).unlink(missing_ok=True)
        os.mkfifo(model / name)

    return make


def endless(name: str) -> Callable[[Path], object]:
    """A terabyte of zeros that takes no room on the disk."""

    def make(model: Path) -> None:
        (model / name).write_bytes(b"")
        os.truncate(model / name, 1 << 40)

    return make


def gone(name: str) -> Callable[[Path], object]:
    return lambda model: (model / name).unlink()


def configured(**changes: Any) -> Callable[[Path], object]:
    """Change entries of config.json."""

    def change(model: Path) -> None:
        config = json.loads((model / "config.json").read_text())
        (model / "config.json").write_text(json.dumps(config | changes))

    return change


def tokenized(**changes: Any) -> Callable[[Path], object]:
    """Change entries of tokenizer.json."""

    def change(model: Path) -> None:
        file = model / "tokenizer.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | changes))

    return change


PANICS = {"type": "Precompiled", "precompiled_charsmap": ""}
DEEP = b"[" * 1_000_000
WEIGHTS, TEMPLATE, LINE = "model.safetensors", "chat_template.jinja", "one line, exit code 2"


@each(
    Attack("a model's weights are a pipe", ENDS, LINE, piped(WEIGHTS)),
    Attack("a model's tokenizer.json is a pipe", ENDS, LINE, piped("tokenizer.json")),
    Attack("a model's config.json is a pipe", ENDS, LINE, piped("config.json")),
    Attack("a model's config.json is of a terabyte", ENDS, LINE, endless("config.json")),
    Attack("a model of ten million layers without weights", ENDS, LINE, configured(num_hidden_layers=10**7)),
    Attack("a model of ten million tokens without weights", ENDS, LINE, configured(vocab_size=10**7)),
    Attack("a model with a context of 10¹³ tokens", ENDS, LINE, configured(max_position_embeddings=10**13)),
    Attack("a model with a context of −5 tokens", MODEL, LINE, configured(max_position_embeddings=-5)),
    Attack("a model whose hidden size is a text", MODEL, LINE, configured(hidden_size="x")),
    Attack("a model whose rms_norm_eps is a text", MODEL, LINE, configured(rms_norm_eps="x")),
    Attack("a model's weights are cut", MODEL, LINE, cut(WEIGHTS)),
    Attack("a model's weights are zeros", MODEL, LINE, holds(WEIGHTS, bytes(100_000))),
    Attack("a model's weights are gone", MODEL, LINE, gone(WEIGHTS)),
    Attack("a model's tokenizer.json is cut", MODEL, LINE, cut("tokenizer.json")),
    Attack("a model's tokenizer.json is nested a million deep", MODEL, LINE, holds("tokenizer.json", DEEP)),
    Attack("a model's tokenizer panics when it is read", MODEL, LINE, tokenized(normalizer=PANICS)),
    Attack("a model's config.json is nested a million deep", MODEL, LINE, holds("config.json", DEEP)),
    Attack("a model's chat template is not UTF-8", MODEL, LINE, holds(TEMPLATE, b"\xff")),
    Attack("a model's chat template does not parse", MODEL, LINE, holds(TEMPLATE, b"{% for %}")),
)
def test_a_model_that_is_none(attack: Attack, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    attack.given(model)
    assert main([*EVAL, "--model", "model", "--task", TASK]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "model" in line and "Traceback" not in line
    assert not Path("run").exists()


STRIPS = {
    "type": "Sequence",
    "decoders": [
        {"type": "Replace", "pattern": {"Regex": "."}, "content": "x"},
        {"type": "Strip", "content": "x", "start": 0, "stop": 50},
    ],
}


@each(Attack("a model's tokenizer panics when it decodes", MODEL, LINE, tokenized(decoder=STRIPS)))
def test_a_tokenizer_that_cannot_decode(attack: Attack, model: Path) -> None:
    attack.given(model)
    tokenizer = Tokenizer(model)
    for decode in (lambda: tokenizer.decode([1]), lambda: tokenizer.texts, lambda: tokenizer.pieces().piece(1)):
        with pytest.raises(UserError, match="the tokenizer of the model fails") as caught:
            decode()
        assert "\n" not in str(caught.value)

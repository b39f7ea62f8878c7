"""Model folders and files of problems from somebody else, or damaged on the way."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attacks.catalogue import Attack, each
from attacks.deadline import within
from models import tiny_model
from small import TASK
from terse import TERSE

from orgthink.cli import main
from orgthink.models.model_files import NAMES, ModelFiles
from orgthink.models.tokenizer import Tokenizer
from orgthink.models.trainable import open_trainable
from orgthink.record.episode import Message
from orgthink.util.errors import UserError

pytestmark = pytest.mark.thorough

MODEL = "A model folder that cannot be opened gets one line that names it, before anything is written."
ENDS = "A command never waits for a file of a model that has no end, and never takes all memory for it."
ROWS = "A file of problems that cannot be read is named with its row, before anything is written."

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
    Attack("a model whose rms_norm_eps is `null`", MODEL, LINE, configured(rms_norm_eps=None)),
    Attack("a model of an architecture that is a text", MODEL, LINE, configured(architectures="Qwen3ForCausalLM")),
    Attack(
        "a model that asks for code of its own", MODEL, LINE, configured(architectures=["E"], auto_map={"E": "e.E"})
    ),
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


SAID = "A model's tokenizer that fails is named in one line."
CHUNKS = {"type": "FixedLength", "length": 0}
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


@each(
    Attack("a model's tokenizer panics at a prompt", SAID, LINE, tokenized(pre_tokenizer=CHUNKS)),
    Attack("a model's tokenizer panics at a reply", SAID, LINE, tokenized(decoder=STRIPS)),
)
def test_a_tokenizer_that_fails_later(attack: Attack, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    attack.given(model)
    assert main([*EVAL, "--model", "model", "--task", TASK]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert "the tokenizer of the model fails" in line


TRUNCATES = {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}
PADS = {
    "strategy": {"Fixed": 50}, "direction": "Left", "pad_to_multiple_of": None,
    "pad_id": 0, "pad_type_id": 0, "pad_token": "x",
}  # fmt: skip
WHOLE = "A model sees the whole prompt and nothing else, whatever its tokenizer.json says of lengths."


@each(
    Attack("a tokenizer.json that truncates", WHOLE, "it is ignored", tokenized(truncation=TRUNCATES)),
    Attack(
        "a tokenizer.json that truncates with too long a stride",
        WHOLE,
        "it is ignored",
        tokenized(truncation=TRUNCATES | {"stride": 9}),
    ),
    Attack("a tokenizer.json that pads", WHOLE, "it is ignored", tokenized(padding=PADS)),
)
def test_a_tokenizer_that_changes_lengths(attack: Attack, model: Path) -> None:
    text = "one two three four five six seven"
    plain = Tokenizer(model).encode(text)
    attack.given(model)
    tokenizer = Tokenizer(model)
    assert tokenizer.encode(text) == plain and len(plain) > 3
    assert tokenizer.prompt((Message("user", text),)) == Tokenizer(model).prompt((Message("user", text),))
    assert tokenizer.injection(text, ("a ", " b"))[1] == tokenizer.encode(f"a {text} b")


GOOD = b'{"problem": "1 + 1", "answer": "2"}\n'


@each(
    Attack("a file of problems that is gone", ROWS, LINE, None),
    Attack("a file of problems of zero bytes", ROWS, LINE, bytes(1000)),
    Attack("a row of problems is cut", ROWS, LINE, GOOD + GOOD[:20]),
    Attack("a row of problems is not UTF-8", ROWS, LINE, GOOD + b'{"problem": "\xff", "answer": "2"}\n'),
    Attack("a row of problems is a list", ROWS, LINE, GOOD + b"[1]\n"),
    Attack("a row of problems without an answer", ROWS, LINE, GOOD + b'{"problem": "1"}\n'),
    Attack("a row of problems nested a million deep", ROWS, LINE, GOOD + DEEP + b"\n"),
)
def test_problems_that_are_none(attack: Attack, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if attack.given is not None:
        Path("rows.jsonl").write_bytes(attack.given)
    assert main([*EVAL, "--model", "model", "--task", "math:rows.jsonl"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "rows.jsonl" in line
    assert not Path("run").exists()


ALONG = "A trained model gets what lies in the folder it began with, under the names that belong to a model."
LEFT = "it stays behind"
FIRST = "one line before the training, exit code 2"


def linked(name: str, target: str) -> Callable[[Path], object]:
    """A link in place of a file, or beside the others."""

    def make(model: Path) -> None:
        (model / name).unlink(missing_ok=True)
        (model / name).symlink_to(target)

    return make


def bound(name: str) -> Callable[[Path], object]:
    def make(model: Path) -> None:
        with contextlib.chdir(model), socket.socket(socket.AF_UNIX) as listening:
            listening.bind(name)

    return make


@each(
    Attack("a model holds a folder that is called `x.json`", ALONG, LEFT, lambda model: (model / "x.json").mkdir()),
    Attack("a model holds a pipe that is called `x.json`", ALONG, LEFT, piped("x.json")),
    Attack("a model holds a link to nowhere that is called `x.json`", ALONG, LEFT, linked("x.json", "nowhere")),
    Attack("a model's `notes.txt` is a link to a private file", ALONG, LEFT, linked("notes.txt", "../private")),
)
def test_what_does_not_belong_to_a_model(attack: Attack, model: Path) -> None:
    Path("private").write_text("a key")
    attack.given(model)
    open_trainable(model)
    Path("trained").mkdir()
    within(30.0, lambda: ModelFiles(model).write(Path("trained")))
    copied = {file.name for file in Path("trained").iterdir()}
    assert {"config.json", "tokenizer.json"} <= copied <= set(NAMES)


@each(
    Attack("a model's `vocab.txt` is a link to a private file", ALONG, FIRST, linked("vocab.txt", "../private")),
    Attack("a model's `vocab.txt` is a link to nowhere", ALONG, FIRST, linked("vocab.txt", "nowhere")),
    Attack("a model's `vocab.txt` is a pipe", ALONG, FIRST, piped("vocab.txt")),
    Attack("a model's `vocab.txt` is a folder", ALONG, FIRST, lambda model: (model / "vocab.txt").mkdir()),
    Attack(
        "a training from a folder with an adapter",
        "What a training makes can be opened.",
        FIRST,
        holds("adapter_config.json", b"{}"),
    ),
)
def test_a_model_that_could_not_be_stored(attack: Attack, model: Path) -> None:
    Path("private").write_text("a key")
    attack.given(model)
    with pytest.raises(UserError, match=r"vocab\.txt is|has an adapter") as caught:
        within(30.0, lambda: open_trainable(model))
    assert "\n" not in str(caught.value)


@each(Attack("a model of the Hub's cache, which is made of links", ALONG, "they are followed to its `blobs`"))
def test_a_model_of_the_cache(attack: Attack, model: Path) -> None:
    folder = Path("models--a/snapshots/b")
    shutil.copytree(model, folder)
    (folder / "tokenizer.json").rename("models--a/tokenizer")
    Path("models--a/blobs").mkdir()
    Path("models--a/tokenizer").rename("models--a/blobs/c")
    (folder / "tokenizer.json").symlink_to("../../blobs/c")
    Path("trained").mkdir()
    ModelFiles(folder).write(Path("trained"))
    copied = Path("trained/tokenizer.json")
    assert not copied.is_symlink() and copied.read_bytes() == (model / "tokenizer.json").read_bytes()

"""Text ↔ ids of a Hugging Face model folder, without transformers. For every engine that takes ids."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tokenizers
from tokenizers.decoders import DecodeStream

from orgthink.episode import Message, Origin, Span

if TYPE_CHECKING:
    from orgthink.engines.engine import Context


class Tokenizer:
    """The tokenizer of a model folder: `tokenizer.json`, and a chat template if there is one."""

    def __init__(self, folder: Path) -> None:
        """ValueError if the folder has no `tokenizer.json`, or one that cannot be read."""
        if not (folder / "tokenizer.json").is_file():
            raise ValueError(f"{folder} has no tokenizer.json: save the model's fast tokenizer beside its weights")
        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        except Exception as error:  # the library raises nothing more special
            raise ValueError(f"{folder / 'tokenizer.json'} cannot be read: {error}") from error
        self._template = _chat_template(folder)
        self.eos_ids = _eos_ids(folder)
        """Ids at which a text ends."""

    def encode(self, text: str) -> tuple[int, ...]:
        """Ids of a text as it stands in the middle of a context: nothing is put before or after it."""
        return tuple(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of some ids, special tokens included."""
        return self._tokenizer.decode(list(ids), skip_special_tokens=False)

    @cached_property
    def texts(self) -> list[str]:
        """The text of each id alone; `\ufffd` stands for bytes that are no character by themselves."""
        size = self._tokenizer.get_vocab_size(with_added_tokens=True)
        return self._tokenizer.decode_batch([[i] for i in range(size)], skip_special_tokens=False)

    def prompt(self, messages: tuple[Message, ...]) -> Span:
        """The prompt span of some turns: by the chat template, or else just their texts."""
        text = (
            "\n\n".join(message.content for message in messages) if self._template is None else self._render(messages)
        )
        ids = self.encode(text)
        return Span(Origin.PROMPT, text, len(ids), ids)

    def pieces(self, context: Context | None = None) -> PieceStream:
        """A decoder for one stream of sampled ids. If the context ends with sampled ones they are gone on from: the
        last of them may have ended inside a character."""
        stream = PieceStream(self._tokenizer)
        if context is not None and context.spans and context.spans[-1].origin is Origin.SAMPLED:
            for token_id in context.spans[-1].token_ids or ():
                stream.piece(token_id)
        return stream

    def id_of(self, text: str) -> int | None:
        """The id of a text that is exactly one token, or `None`."""
        ids = self.encode(text)
        return ids[0] if len(ids) == 1 and PieceStream(self._tokenizer).piece(ids[0]).strip() == text else None

    def _render(self, messages: tuple[Message, ...]) -> str:
        turns = [{"role": message.role, "content": message.content} for message in messages]
        return self._template.render(messages=turns, add_generation_prompt=True)


class PieceStream:
    """The text that each id of a stream adds; empty while a character is incomplete."""

    def __init__(self, tokenizer: tokenizers.Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._stream = DecodeStream(skip_special_tokens=False)

    def piece(self, token_id: int) -> str:
        return self._stream.step(self._tokenizer, token_id) or ""


def _chat_template(folder: Path) -> Any:
    """The compiled template of `chat_template.jinja` or `tokenizer_config.json`; `None` without one."""
    file = folder / "chat_template.jinja"
    source = file.read_text() if file.is_file() else _json(folder / "tokenizer_config.json").get("chat_template")
    if not isinstance(source, str):
        return None
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    return ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True).from_string(source)


def _eos_ids(folder: Path) -> frozenset[int]:
    for name in ("generation_config.json", "config.json"):
        ids = _json(folder / name).get("eos_token_id")
        if ids is not None:
            return frozenset(ids if isinstance(ids, list) else [ids])
    return frozenset()


def _json(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text()) if file.is_file() else {}

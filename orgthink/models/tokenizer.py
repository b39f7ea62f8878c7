"""Text ↔ ids of a Hugging Face model folder, without transformers. For every engine that takes ids."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import tokenizers

from orgthink.models.context import NOOP, Tools
from orgthink.models.templates import chat_template
from orgthink.record.episode import Message, Origin, Span
from orgthink.util.errors import UserError, explained
from orgthink.util.settings import typed
from orgthink.util.tabular import json_object
from orgthink.util.terminal import reason

if TYPE_CHECKING:
    from orgthink.models.context import Context

P = ParamSpec("P")
T = TypeVar("T")

_REPLY, _TEXT, _TOOLS = "\ue000", "\ue001", "\ue002"
"""Stand for a reply and for the next message, to find the text that the chat template puts between them, and for the
role of a message that is the JSON list of the tools. Templates do not use these private-use characters."""

_CALL = re.compile(r'<tool_call>\s*\{\s*"(name|arguments)"')
"""How a chat template describes a call."""


class Tokenizer:
    """The tokenizer of a model folder: `tokenizer.json`, and a chat template if there is one."""

    def __init__(self, folder: Path, template: Mapping[str, Any] | None = None) -> None:
        """The arguments `template` of the chat template replace those of the folder's `orgthink.json`.

        ValueError if the folder has no `tokenizer.json`, or if that or its chat template cannot be read. UserError for
        arguments that the chat template does not read.
        Later on, UserError where that or the template, a stranger's program, fails.
        """
        if not (folder / "tokenizer.json").is_file():
            raise ValueError(f"{folder} has no tokenizer.json: save the model's fast tokenizer next to its weights")
        file = str(folder / "tokenizer.json")
        self._tokenizer = _library_result(f"{file} cannot be read", tokenizers.Tokenizer.from_file, file)
        self._tokenizer.no_truncation()  # the file may ask for either
        self._tokenizer.no_padding()
        preset = typed(dict[str, Any], _json(folder / "orgthink.json").get("template", {}), folder / "orgthink.json")
        self._values: dict[str, Any] = {**_marks(folder), **(own := {**preset, **(template or {})})}
        self._folder, self._template = folder, chat_template(folder, own)
        self.eos_ids = _eos_ids(folder)
        """Ids that end a text."""
        self._tokenizer = self._with_special_marks()

    def encode(self, text: str) -> tuple[int, ...]:
        """Ids of a text within a context: no special tokens are added. Half a surrogate pair is read as `?`."""
        return _ids(self._tokenizer, text)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of some ids, special tokens included."""
        return _library_result(_FAILS, self._tokenizer.decode, list(ids), skip_special_tokens=False)

    @cached_property
    def texts(self) -> list[str]:
        """The text of each id alone; `\ufffd` stands for bytes that are not a complete character."""
        size = self._tokenizer.get_vocab_size(with_added_tokens=True)
        return _library_result(
            _FAILS, self._tokenizer.decode_batch, [[i] for i in range(size)], skip_special_tokens=False
        )

    @cached_property
    def native_calls(self) -> bool:
        """Whether the chat template describes tools and asks for calls in the form that the grammar reads:
        `<tool_call>{"name": …}</tool_call>`."""
        with suppress(UserError):  # there is no template, or it takes no tools
            text = self._render((Message("user", "?"), _offered((NOOP,))))
            return NOOP["name"] in text and bool(_CALL.search(text)) and not self._normalized_ids
        return False

    def prompt(self, messages: tuple[Message, ...], tools: Tools = ()) -> Span:
        """The prompt span of some turns and of the tools: by the chat template, or else only their texts.

        Only the template adds special tokens: one within a message or a tool is encoded as plain text.
        """
        messages = (*messages, _offered(tools)) if tools else messages
        contents = "".join(message.content for message in messages)
        quoted = [token for token in self._special if token in contents]
        quoted += [
            one.content
            for one in messages
            if self._normalized_ids and self._means_special(self._names.sub(" ", one.content))
        ]
        if self._template is None:
            text, ids = self.injection("\n\n".join(message.content for message in messages))
        elif not quoted:
            text = self._render(messages)
            ids = self.encode(text)
        else:
            text, ids = self._quoting(messages, _stand_ins(quoted, contents))
        return Span(Origin.PROMPT, text, len(ids), ids)

    def injection(self, text: str, around: tuple[str, str] = ("", "")) -> tuple[str, tuple[int, ...]]:
        """Others' text with the organization's own before and after it. The name of a special token within the text is
        encoded as plain text."""
        before, after = around
        whole, end = f"{before}{text}{after}", len(before) + len(text)
        named = any(found.start() < end and found.end() > len(before) for found in self._names.finditer(whole))
        if named or self._means_special(text):
            return whole, (*self.encode(before), *_ids(self._plain, text), *self.encode(after))
        return whole, self.encode(whole)

    def turn(self, text: str, context: Context | None = None) -> tuple[str, tuple[int, ...]]:
        """The text between a reply and the next one for the user's message `text`: by the chat template, or else only
        the message.

        With a `context` whose reply already sampled the token that ends its turn, that token is not added again. The
        name of a special token within the message is encoded as plain text.
        """
        if self._template is None:
            return self.injection(text)
        before, after = self._frame
        between = self._between(text)
        message = between[len(before) : len(between) - len(after)]  # some templates strip it
        end = self._end(context)
        before = before.partition(end)[2] if end and end in before else before
        return self.injection(message, (before, after))

    def pieces(self, context: Context | None = None) -> PieceStream:
        """A decoder for one stream of sampled ids. It first reads the sampled ids at the end of the context, because
        they may end inside a character."""
        stream = PieceStream(self._tokenizer)
        if context is not None and context.spans and context.spans[-1].decoded:
            for token_id in context.spans[-1].token_ids or ():
                stream.piece(token_id)
        return stream

    def id_of(self, text: str) -> int | None:
        """The id of a text that is exactly one token, or `None`."""
        ids = self.encode(text)
        return ids[0] if len(ids) == 1 and PieceStream(self._tokenizer).piece(ids[0]).strip() == text else None

    def _render(self, messages: tuple[Message, ...]) -> str:
        turns = [{"role": one.role, "content": one.content} for one in messages if one.role != _TOOLS]
        tools = next((json.loads(one.content) for one in messages if one.role == _TOOLS), None)
        with explained(f"the chat template of {self._folder} fails", Exception, UserError):
            return self._template({**self._values, "messages": turns, "tools": tools, "add_generation_prompt": True})

    def _quoting(self, messages: tuple[Message, ...], stand_ins: dict[str, str]) -> tuple[str, tuple[int, ...]]:
        """Text and ids of turns that contain names of special tokens, or are read as some, which are replaced while the
        template runs."""
        back = str.maketrans({mark: token for token, mark in stand_ins.items()})
        hidden = [
            stand_ins.get(one.content) or self._names.sub(lambda found: stand_ins[found[0]], one.content)
            for one in messages
        ]
        turns = tuple(replace(message, content=text) for message, text in zip(messages, hidden, strict=True))
        text, ids, live = "", [], ""
        for part in self._names.split(self._render(turns)):
            original = part.translate(back)
            text += original
            if original == part:
                live += part
            else:
                ids += [*self.encode(live), *_ids(self._plain, original)]
                live = ""
        return text, (*ids, *self.encode(live))

    def _between(self, text: str) -> str:
        """The text of the template from the end of a reply to the beginning of the next one."""
        turns = (Message("user", "?"), Message("assistant", _REPLY), Message("user", text))
        return self._render(turns).partition(_REPLY)[2]

    @cached_property
    def _frame(self) -> tuple[str, str]:
        """The parts of `_between` before and after the user's message."""
        before, _, after = self._between(_TEXT).partition(_TEXT)
        return before, after

    def _end(self, context: Context | None) -> str:
        """The token that ended the last reply; empty without one."""
        last = context.spans[-1] if context is not None and context.spans else None
        if last is None or not last.decoded or not last.token_ids:
            return ""
        return self.decode(last.token_ids[-1:]) if last.token_ids[-1] in self.eos_ids else ""

    def _with_special_marks(self) -> tokenizers.Tokenizer:
        """The tokenizer, in which what ends a text, and what the chat template writes around a turn, is special."""
        written = ""
        with suppress(UserError):  # a prompt will say it
            written = self._render((Message("user", _TEXT),)) if self._template is not None else ""
        marks = {
            token.content
            for token_id, token in self._tokenizer.get_added_tokens_decoder().items()
            if not token.special and token.content.strip() and (token_id in self.eos_ids or token.content in written)
        }
        if not marks:
            return self._tokenizer
        data = json.loads(self._tokenizer.to_str())
        for token in data["added_tokens"]:
            token["special"] = token["special"] or token["content"] in marks
        return _library_result(_FAILS, tokenizers.Tokenizer.from_str, json.dumps(data))

    def _means_special(self, text: str) -> bool:
        """Whether a text that names no special token is read as one: a normalizer may make `<END>` of `[end]`."""
        return bool(self._normalized_ids) and not self._normalized_ids.isdisjoint(self.encode(text))

    @cached_property
    def _normalized_ids(self) -> frozenset[int]:
        """Special tokens that are looked for in normalized text. Most tokenizers have none."""
        added = self._tokenizer.get_added_tokens_decoder().items()
        return frozenset(token_id for token_id, token in added if token.special and token.normalized)

    @cached_property
    def _special(self) -> list[str]:
        """Texts of the special tokens."""
        return [token.content for token in self._tokenizer.get_added_tokens_decoder().values() if token.special]

    @cached_property
    def _names(self) -> re.Pattern[str]:
        """Finds these texts, the longest first."""
        names = sorted(self._special, key=len, reverse=True)
        return re.compile(f"({'|'.join(map(re.escape, names)) or '(?!)'})")

    @cached_property
    def _plain(self) -> tokenizers.Tokenizer:
        """A tokenizer that encodes the name of a special token as plain text."""
        plain = tokenizers.Tokenizer.from_str(self._tokenizer.to_str())
        plain.encode_special_tokens = True
        return plain


def _offered(tools: Tools) -> Message:
    """The tools of a prompt, as chat templates know them."""
    functions = [{"type": "function", "function": dict(tool)} for tool in tools]
    return Message(_TOOLS, json.dumps(functions, ensure_ascii=False))


def _ids(tokenizer: tokenizers.Tokenizer, text: str) -> tuple[int, ...]:
    whole = text.encode("utf-8", "replace").decode()  # the library takes no half of a surrogate pair
    # A list is read without the interpreter's lock, so that other threads go on.
    (read,) = _library_result(_FAILS, tokenizer.encode_batch, [whole], add_special_tokens=False)
    return tuple(read.ids)


_FAILS = "the tokenizer of the model fails"


def _library_result(failure: str, ask: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """What the library answers. UserError with `failure` where it raises a bare Exception or, in Rust, panics."""
    try:
        return ask(*arguments, **named)
    except BaseException as error:  # a panic is no Exception
        if isinstance(error, KeyboardInterrupt) or (isinstance(error, Exception) and type(error) is not Exception):
            raise
        raise UserError(f"{failure}: {reason(error)}") from error


def _stand_ins(tokens: Sequence[str], text: str) -> dict[str, str]:
    """A private-use character for each token that does not occur in the text."""
    free = (mark for mark in map(chr, range(0xF0000, 0x110000)) if mark not in text)
    return {token: next(free) for token in tokens}


LOOK_BACK = 16
"""Most ids that wait for text, or for the rest of a character, which has four bytes. Bytes that make none are `\ufffd`
then."""


class PieceStream:
    """The text that each id of a stream adds; empty while a character is incomplete. It takes any ids, each in constant
    time: a model may sample bytes that are no character, and a server may send ids that mean nothing."""

    def __init__(self, tokenizer: tokenizers.Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._before: list[int] = []
        """Ids of the last text: a decoder may write a token without the space before it where a text begins."""
        self._text = ""
        """Their text."""
        self._waiting: list[int] = []
        """Ids since then, which are no text yet."""

    def piece(self, token_id: int) -> str:
        self._waiting.append(token_id)
        text = self._decoded(self._before + self._waiting)
        whole = text != self._text and not text.endswith("\ufffd")
        if not whole and len(self._waiting) < LOOK_BACK:
            return ""
        own = self._decoded(self._waiting)
        # Bytes that make no character may change how those before them are read; what was handed over stays.
        piece = text[len(self._text) :] if text.startswith(self._text) else own
        if piece:
            self._before, self._text = self._waiting, own
        self._waiting = []
        return piece

    def _decoded(self, ids: list[int]) -> str:
        return _library_result(_FAILS, self._tokenizer.decode, ids, skip_special_tokens=False)


def _marks(folder: Path) -> dict[str, str]:
    """Texts of the tokens for the beginning and the end of a text, which templates use."""
    config = _json(folder / "tokenizer_config.json")
    found = {name: config.get(name) for name in ("bos_token", "eos_token")}
    return {name: mark.get("content", "") if isinstance(mark, dict) else mark for name, mark in found.items() if mark}


def _eos_ids(folder: Path) -> frozenset[int]:
    for name in ("generation_config.json", "config.json"):
        ids = _json(folder / name).get("eos_token_id")
        if ids is not None:
            found = ids if isinstance(ids, list) else [ids]
            if not all(isinstance(one, int) for one in found):
                raise ValueError(f"{folder / name}: its eos_token_id is neither a number nor a list of numbers")
            return frozenset(found)
    return frozenset()


def _json(file: Path) -> dict[str, Any]:
    return json_object(file) if file.is_file() else {}

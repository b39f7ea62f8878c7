"""What engines have in common that read and write token ids: text becomes ids by a tokenizer of theirs."""

from __future__ import annotations

from orgthink.engines.engine import Context
from orgthink.engines.tokenizer import Tokenizer
from orgthink.episode import Message, Span


class TokenIds:
    """Prompts, injections and turns as the tokenizer has them."""

    _tokenizer: Tokenizer

    def prompt(self, messages: tuple[Message, ...]) -> Span:
        return self._tokenizer.prompt(messages)

    def injection(self, text: str) -> tuple[str, tuple[int, ...]]:
        return text, self._tokenizer.encode(text)

    def turn(self, context: Context, text: str) -> tuple[str, tuple[int, ...]]:
        return self._tokenizer.turn(text, context)

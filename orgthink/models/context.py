"""The context of an agent: what a model reads, as messages, spans and token ids."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from orgthink.record.episode import Message, Span

Tools = tuple[Mapping[str, Any], ...]
"""Tools of a model, each as `{"name", "description", "parameters"}` with a JSON Schema of the parameters."""

NOOP = {"name": "noop", "description": "Does nothing.", "parameters": {"type": "object", "properties": {}}}
"""A tool for testing whether a server or a chat template takes tools."""

RESERVED = frozenset(
    {"messages", "tools", "add_generation_prompt", "continue_final_message", "bos_token", "eos_token", "chat_template"}
)
"""Names in a chat template that engines and servers fill in themselves."""


@dataclass(frozen=True, slots=True)
class Context:
    """The context of an agent, for engines that take ids, text or messages."""

    messages: tuple[Message, ...]
    """The prompt as turns."""
    spans: list[Span] = field(default_factory=list)
    """The prompt span, then sampled and injected spans. Read only for engines."""
    tools: Tools = ()
    """Tools to offer natively; only engines with native calls use them."""
    signals: tuple[str, ...] = ()
    """Texts on which the runtime acts while decoding goes on. An engine that answers in parts ends a part there."""

    @property
    def begun(self) -> bool:
        """Whether the model has sampled anything in it, inherited text included."""
        return any(span.decoded for span in self.spans)

    @property
    def token_ids(self) -> list[int]:
        """Exactly the ids the model has seen; ValueError if a span has none."""
        ids: list[int] = []
        for span in self.spans:
            if span.token_ids is None:
                raise ValueError(f"a {span.origin} span has no token ids")
            ids.extend(span.token_ids)
        return ids

    @property
    def turns(self) -> list[Message]:
        """The context as a conversation: decoded text belongs to the assistant, other text to the user."""
        return [turn for turn, _ in self._conversation]

    @property
    def thoughts(self) -> list[str]:
        """Reasoning of the model in each turn, separate from its text; empty in other turns."""
        return [thoughts for _, thoughts in self._conversation]

    @property
    def _conversation(self) -> list[tuple[Message, str]]:
        turns = [(message, "") for message in self.messages]
        for span in self.spans[1:]:
            role = "assistant" if span.decoded else "user"
            text, thoughts = span.text, span.reasoning or ""
            if turns and turns[-1][0].role == role:
                before, earlier = turns.pop()
                text, thoughts = before.content + text, earlier + thoughts
            turns.append((Message(role, text), thoughts))
        return turns

    @property
    def text(self) -> str:
        return "".join(span.text for span in self.spans)

"""Contents of messages in parts, as Mistral sends and takes them: thoughts are parts beside the text. No I/O."""

from __future__ import annotations

from typing import Any

from orgthink.engines.schema import SentPart

MEMBER = "content"
"""Member of a message in which such thoughts come and go back."""


def text_and_thoughts(content: str | list[SentPart] | None) -> tuple[str, str]:
    """What a content says, and what it thinks. Parts of other types, such as references, are neither."""
    if content is None or isinstance(content, str):
        return content or "", ""
    text = "".join(part.text or "" for part in content if part.type == "text")
    return text, "".join(_thoughts(part.thinking) for part in content if part.type == "thinking")


def in_parts(text: str | None, thoughts: str) -> list[dict[str, Any]]:
    """The content of a message with its thoughts."""
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": thoughts}]}
    return [thinking, *([{"type": "text", "text": text}] if text else [])]


def _thoughts(sent: Any) -> str:
    """The texts among the parts of a thought. Whatever else a server sends there is none."""
    if isinstance(sent, str):
        return sent
    texts = [part.get("text") for part in sent if isinstance(part, dict)] if isinstance(sent, list) else []
    return "".join(text for text in texts if isinstance(text, str))

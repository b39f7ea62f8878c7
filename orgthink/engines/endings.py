"""Why an answer ended, by the word that its server gives for it. No I/O."""

from __future__ import annotations

from orgthink.engines.engine import FinishReason, StreamDropped
from orgthink.engines.schema import SentChoice
from orgthink.util.errors import RequestRefused
from orgthink.util.terminal import excerpt

_ENDS = {
    "stop": FinishReason.EOS,
    "eos": FinishReason.EOS,  # Together
    "eos_token": FinishReason.EOS,  # TGI
    "end_turn": FinishReason.EOS,  # Anthropic
    "tool_calls": FinishReason.EOS,
    "function_call": FinishReason.EOS,
    "stop_sequence": FinishReason.STOP,  # TGI, Anthropic
    "length": FinishReason.LENGTH,
    "model_length": FinishReason.LENGTH,  # Mistral
    "max_tokens": FinishReason.LENGTH,  # Anthropic
}

_GIVEN_UP = ("abort", "error")
"""Words of vLLM, Mistral and others for an answer that they gave up; DeepSeek says what was insufficient."""


def finish_reason(choice: SentChoice) -> FinishReason | None:
    """Why the answer ends here; `None` if it goes on. StreamDropped if the same request may be answered in full,
    RequestRefused if the server will not go on, as with content_filter."""
    word = choice.finish_reason
    if not word:
        return None
    if word == "stop" and isinstance(choice.stop_reason, str):  # of vLLM: a stop text, or the id of a token
        return FinishReason.STOP
    if word in _ENDS:
        return _ENDS[word]
    failure = StreamDropped if word in _GIVEN_UP or word.startswith("insufficient_") else RequestRefused
    raise failure(f"the server ended the answer: {excerpt(word)}")

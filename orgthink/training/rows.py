"""Training rows: one trace, one row of tokens, and which of them are trained."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from orgthink.episode import Origin, Trace

Encode = Callable[[str], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Row:
    """A sequence to train on."""

    token_ids: tuple[int, ...]
    """Everything the model saw, in order."""
    trained: tuple[bool, ...]
    """One for each token: `True` where the model sampled it, so `<JOIN-i>` is and what it brings is not."""

    def __len__(self) -> int:
        return len(self.token_ids)


def row_of(trace: Trace, encode: Encode | None = None, eos_id: int | None = None) -> Row:
    """The row of a trace. Spans without ids (a teacher's) are encoded one by one, as the runtime would.

    `eos_id` is appended as a trained token: teachers end their texts. ValueError if ids are missing.
    """
    ids: list[int] = []
    trained: list[bool] = []
    for span in trace.spans:
        span_ids = span.token_ids
        if span_ids is None:
            if encode is None:
                raise ValueError(f"{trace.agent}: a {span.origin} span has no token ids and there is no tokenizer")
            span_ids = encode(span.text)
        ids.extend(span_ids)
        trained.extend([span.origin is Origin.SAMPLED] * len(span_ids))
    if eos_id is not None:
        ids.append(eos_id)
        trained.append(True)
    return Row(tuple(ids), tuple(trained))

"""Masked supervised fine-tuning on a manager's trajectories (Eq. 9 of ParaManager): what it said is trained, what it
was told is seen.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from itertools import groupby
from pathlib import Path

from orgthink.coldstart.pair_course import end_of_text
from orgthink.coldstart.trajectories import Exclusion, Selection, select
from orgthink.engines.engine import Context
from orgthink.engines.tokenizer import Tokenizer
from orgthink.episode import Episode, Message, Origin, Problem, Span, Trace
from orgthink.errors import UserError, user_input
from orgthink.grammar.toolcall import TAGS
from orgthink.organizations.prompts import STYLES, prompt
from orgthink.store import RunFolder
from orgthink.training.rows import Row, row_of


def trajectory_rows(
    run: RunFolder, model_folder: Path, *, most: float = 0.5, longest: int | None = None
) -> tuple[list[Row], Selection]:
    """The rows of the trajectories of a run that are learned from, and which these are.

    `longest` is the most tokens of a row. The run is read twice, so that memory holds nothing but the rows. UserError
    that says why if nothing is left to learn from.
    """
    with user_input():
        tokenizer = Tokenizer(model_folder)
    spelled = partial(manager_row, tokenizer=tokenizer, end=end_of_text(tokenizer, model_folder))
    with user_input():
        selection = select(run.episodes(), most=most, unfit=partial(_unfit, spelled=spelled, longest=longest))
    if not selection.ids:
        raise UserError(f"{run.path} holds nothing to learn from: {selection.summary}")
    selected = frozenset(selection.ids)
    rows = {episode.id: spelled(episode.root) for episode in run.episodes() if episode.id in selected}
    return [row for i in selection.ids if (row := rows[i]) is not None], selection


def manager_row(trace: Trace, tokenizer: Tokenizer, end: int) -> Row | None:
    """The row of a manager's trace, for the model with this tokenizer; `end` ends a reply.

    Ids that are the tokenizer's own are taken as they are. Those of another model are not: then the text is encoded,
    the prompt and what was told as the user's turns, each reply as the assistant's. `None` if that text already holds
    the turns of another model's chat template.
    """
    if all(_own(span, tokenizer) for span in trace.spans):
        return row_of(trace)
    return row_of(_respelled(trace, tokenizer, end)) if _bare(trace) else None


def _unfit(episode: Episode, spelled: Callable[[Trace], Row | None], longest: int | None) -> Exclusion | None:
    if _unlisted(episode.root):
        return Exclusion.UNLISTED
    row = spelled(episode.root)
    if row is None:
        return Exclusion.TEMPLATE
    return Exclusion.LONG if longest is not None and len(row) > longest else None


def _unlisted(trace: Trace) -> bool:
    """Whether a prompt with a place for tools lists none, as where a server tells its model of them itself."""
    prompt_text = "".join(span.text for span in trace.spans if span.origin is Origin.PROMPT)
    return any(f"{line}\n\n" in prompt_text for line in _headings())


@cache
def _headings() -> tuple[str, ...]:
    """The line above the tools in a manager's prompt, of each style that lists them."""
    mark = "\0"
    texts = [prompt(style, "manager", Problem("", "", ""), tools=mark)[0].content for style in STYLES]
    return tuple(text.partition(mark)[0].splitlines()[-1] for text in texts if mark in text)


def _own(span: Span, tokenizer: Tokenizer) -> bool:
    """Whether ids and text of a span are one and the same to a tokenizer.

    Most are what it makes of the text; a model may also sample ids that it would not.
    """
    if span.token_ids is None:
        return False
    ids = span.token_ids
    if span.origin is Origin.SAMPLED and ids and ids[-1] in tokenizer.eos_ids:
        ids = ids[:-1]  # it was sampled, but is no text
    return tokenizer.encode(span.text) == ids or "".join(map(tokenizer.pieces().piece, ids)) == span.text


def _bare(trace: Trace) -> bool:
    """Whether the first injected text begins with the responses, not with the turns of a chat template."""
    response = next((span.text for span in trace.spans if span.origin is Origin.INJECTED), "")
    return response.startswith(TAGS.response[0])


def _respelled(trace: Trace, tokenizer: Tokenizer, end: int) -> Trace:
    """The trace with the text of its turns encoded, as the runtime would have it."""
    context = Context(())
    for origin, spans in groupby(trace.spans, lambda span: span.origin):
        text = "".join(span.text for span in spans)
        if origin is Origin.PROMPT:
            span = tokenizer.prompt((Message("user", text),))
        elif origin is Origin.INJECTED:
            seen, ids = tokenizer.turn(text, context)
            span = Span(origin, seen, len(ids), ids)
        else:
            ids = (*tokenizer.encode(text), end)
            span = Span(origin, text, len(ids), ids)
        context.spans.append(span)
    return replace(trace, spans=tuple(context.spans))

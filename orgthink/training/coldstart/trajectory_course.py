"""Masked supervised fine-tuning on a manager's trajectories (Eq. 9 of ParaManager).

The tokens of the manager's replies are trained. Its prompt and the responses of tools are context only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from orgthink.engines.engine import Context
from orgthink.evaluate.evaluation import OrganizationSpec
from orgthink.grammar.toolcall import TAGS, CallTags
from orgthink.models.tokenizer import Tokenizer
from orgthink.organizations.prompts import STYLES, prompt
from orgthink.record.episode import Episode, Message, Origin, Problem, Span, Trace
from orgthink.record.folder import RunFolder
from orgthink.training.coldstart.pair_course import end_of_text
from orgthink.training.coldstart.trajectories import Exclusion, Selection, select
from orgthink.training.rows import Row, row_of
from orgthink.util.errors import UserError, user_input
from orgthink.util.validation import typed


def trajectory_rows(
    run: RunFolder, model_folder: Path, *, most: float = 0.5, longest: int | None = None
) -> tuple[list[Row], Selection]:
    """The training rows of a run's selected trajectories, and the selection.

    `longest` is the largest number of tokens in a row. `most` is the largest share of calls for one tool. The run is
    read twice, so only the rows stay in memory. UserError with the reasons if no trajectory can be selected.
    """
    with user_input():
        tokenizer = Tokenizer(model_folder)
    end, tags = end_of_text(tokenizer, model_folder), tags_in(run)

    def spelled(episode: Episode) -> Row | None:
        return manager_row(episode.root, tokenizer, end, tags.get(episode.organization, TAGS))

    with user_input():
        unfit = partial(_unfit, spelled=spelled, longest=longest)
        selection = select(run.episodes(), most=most, unfit=unfit, tags=tags)
    if not selection.ids:
        raise UserError(f"{run.path} holds nothing to learn from: {selection.summary}")
    selected = frozenset(selection.ids)
    rows = {episode.id: spelled(episode) for episode in run.episodes() if episode.id in selected}
    return [row for i in selection.ids if (row := rows[i]) is not None], selection


def tags_in(run: RunFolder) -> dict[str, CallTags]:
    """The tags of the calls by the label of the organization, where its settings name some. Nothing is imported."""
    match run.config["settings"]:
        case {"organizations": dict(organizations)}:
            specs = {label: typed(OrganizationSpec, spec, run.path) for label, spec in organizations.items()}
            own = {label: spec.settings["tags"] for label, spec in specs.items() if "tags" in spec.settings}
            return {label: typed(CallTags, tags, run.path) for label, tags in own.items()}
    return {}


def manager_row(trace: Trace, tokenizer: Tokenizer, end: int, tags: CallTags = TAGS) -> Row | None:
    """The training row of a manager's trace for the model with this tokenizer. The token `end` ends a reply.

    Token ids of this tokenizer are used unchanged. A trace of another model is encoded again from its text: the prompt
    and injected responses become user turns, each reply becomes an assistant turn. `None` if that text already
    contains turns of another model's chat template.
    """
    if all(_own(span, tokenizer) for span in trace.spans):
        return row_of(trace)
    return row_of(_respelled(trace, tokenizer, end)) if _bare(trace, tags) else None


def _unfit(episode: Episode, spelled: Callable[[Episode], Row | None], longest: int | None) -> Exclusion | None:
    if _unlisted(episode.root):
        return Exclusion.UNLISTED
    row = spelled(episode)
    if row is None:
        return Exclusion.TEMPLATE
    return Exclusion.LONG if longest is not None and len(row) > longest else None


def _unlisted(trace: Trace) -> bool:
    """Whether the prompt has the heading of a tool list without tools. A server with native calls lists them itself."""
    prompt_text = "".join(span.text for span in trace.spans if span.origin is Origin.PROMPT)
    return any(f"{line}\n\n" in prompt_text for line in _headings())


@cache
def _headings() -> tuple[str, ...]:
    """The line above the list of tools in the manager's prompt, for each prompt style that lists them."""
    placeholder = "\0"
    texts = [prompt(style, "manager", Problem("", "", ""), tools=placeholder)[0].content for style in STYLES]
    return tuple(text.partition(placeholder)[0].splitlines()[-1] for text in texts if placeholder in text)


def _own(span: Span, tokenizer: Tokenizer) -> bool:
    """Whether the ids of a span are this tokenizer's ids of its text.

    Usually the ids are the encoding of the text. A model may also sample other ids that decode to the same text.
    """
    if span.token_ids is None:
        return False
    ids = span.token_ids
    if span.origin is Origin.SAMPLED and ids and ids[-1] in tokenizer.eos_ids:
        ids = ids[:-1]  # an end-of-text token has no text
    return tokenizer.encode(span.text) == ids or "".join(map(tokenizer.pieces().piece, ids)) == span.text


def _bare(trace: Trace, tags: CallTags) -> bool:
    """Whether the first injected text begins with the tag of a response, not with a turn of a chat template."""
    response = next((span.text for span in trace.spans if span.origin is Origin.INJECTED), "")
    return response.startswith(tags.response[0])


def _respelled(trace: Trace, tokenizer: Tokenizer, end: int) -> Trace:
    """The trace with its turns encoded again by this tokenizer, as the runtime would encode them."""
    context = Context(())
    for origin, spans in groupby(trace.spans, attrgetter("origin")):
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

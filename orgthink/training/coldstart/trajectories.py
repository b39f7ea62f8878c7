"""Selection of a manager's episodes for supervised fine-tuning (section 4.2 of ParaManager).

At most one episode per problem is selected, only with an all correct answer. Episodes that recovered from a failure are
preferred. No tool may dominate the calls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from orgthink.engines.engine import Context
from orgthink.evaluation.specs import OrganizationSpec
from orgthink.grammar.toolcall import RESPONSE_TAGS, BadCall
from orgthink.measure import orchestration
from orgthink.models.tokenizer import Tokenizer
from orgthink.record.episode import Episode, Message, Origin, Span, Trace
from orgthink.record.folder import RunFolder
from orgthink.training.coldstart.pairs import end_of_text
from orgthink.training.rows import Row, row_of
from orgthink.util.errors import UserError, user_input
from orgthink.util.settings import typed


class Exclusion(StrEnum):
    """Why a trajectory is left out."""

    UNMANAGED = "no manager led it"
    UNGRADED = "it has no grade"
    WRONG = "its answer is not all correct"
    UNENDED = "its manager did not call final_answer"
    MALFORMED = "it ends with a malformed call"
    """The last reply has a malformed call, and no later reply recovers from it."""
    TEMPLATE = "another model's chat template is in its text"
    LONG = "it is too long"
    SPARE = "another trajectory of its problem was selected"
    DOMINATED = "one tool would have made too many of the calls"


@dataclass(frozen=True, slots=True)
class Selection:
    """The selected episodes, and the reasons why others were left out."""

    ids: tuple[str, ...]
    """Sorted ids of the selected episodes."""
    rows: tuple[Row, ...]
    """Their training rows, if these were made."""
    left_out: Counter[Exclusion]
    """Number of the other episodes by reason."""

    @property
    def summary(self) -> str:
        """The counts in one line of text."""
        learned = f"{len(self.ids)} of {len(self.ids) + self.left_out.total()} trajectories are selected"
        return "; ".join([learned, *(f"{count} left out: {reason}" for reason, count in self.left_out.most_common())])


class _Candidate(NamedTuple):
    """An episode that may be selected. A lower one is preferred."""

    unrecovered: bool
    """Whether no call failed. Episodes that recovered from a failure are preferred."""
    slips: int
    """Number of the manager's own format errors."""
    id: str
    tools: Counter[str]
    """Number of executed calls by tool."""
    row: Row | None
    """Its training row."""


def select(
    episodes: Iterable[Episode],
    *,
    most: float = 0.5,
    wrong: bool = False,
    spelled: Callable[[Episode], Row | Exclusion | None] = lambda episode: None,
) -> Selection:
    """Select at most one episode per problem, a correct one, or with `wrong` any. The result does not depend on the
    order of the episodes.

    `spelled` returns the training row of an episode, or a further reason to exclude it. No tool makes more than the
    share `most` of all selected calls; episodes with the largest share of the dominating tool are removed until that
    holds. A share that cannot hold (such as 0.5 with one tool) leaves only episodes without calls. ValueError unless
    `most` is in (0, 1].
    """
    if not 0 < most <= 1:
        raise ValueError(f"most is {most}: the largest share of calls for one tool must be above 0 and at most 1")
    left_out: Counter[Exclusion] = Counter()
    best: dict[str, _Candidate] = {}
    for episode in episodes:
        row = _fault(episode, wrong) or spelled(episode)
        if isinstance(row, Exclusion):
            left_out[row] += 1
            continue
        rank = not orchestration.recovered(episode), len(episode.format_faults)
        candidate = _Candidate(*rank, episode.id, orchestration.tools(episode), row)
        other = best.setdefault(episode.problem.id, candidate)
        left_out[Exclusion.SPARE] += other is not candidate
        best[episode.problem.id] = min(candidate, other, key=lambda c: c[:3])
    selected = sorted(_balanced(list(best.values()), most), key=lambda c: c.id)
    left_out[Exclusion.DOMINATED] = len(best) - len(selected)
    rows = tuple(candidate.row for candidate in selected if candidate.row is not None)
    return Selection(tuple(candidate.id for candidate in selected), rows, +left_out)


def _fault(episode: Episode, wrong: bool) -> Exclusion | None:
    """The reason to exclude an episode, whatever the other episodes are; `None` without a reason."""
    if not orchestration.managed(episode):
        return Exclusion.UNMANAGED
    if episode.grade is None:
        return Exclusion.UNGRADED
    if not (wrong or episode.grade.all_correct):
        return Exclusion.WRONG
    rounds = orchestration.rounds(episode)
    if not rounds or not rounds[-1].ends:
        return Exclusion.UNENDED
    return Exclusion.MALFORMED if any(isinstance(call, BadCall) for call in rounds[-1].reply.calls) else None


def _balanced(candidates: list[_Candidate], most: float) -> list[_Candidate]:
    """Remove candidates until no tool makes more than the share `most` of the calls.

    While a tool exceeds it, the candidate with the largest share of that tool goes, first those that recovered from no
    failure.
    """
    selected, calls = list(candidates), sum((c.tools for c in candidates), Counter[str]())
    while calls:
        tool = max(sorted(calls), key=calls.__getitem__)
        if calls[tool] <= most * calls.total():
            break
        worst = max(
            selected, key=lambda c: (c.tools[tool] / max(1, c.tools.total()), c.unrecovered, c.tools[tool], c.id)
        )
        selected.remove(worst)
        calls -= worst.tools
    return selected


def trajectory_rows(
    run: RunFolder,
    model_folder: Path,
    *,
    most: float = 0.5,
    wrong: bool = False,
    longest: int | None = None,
    template: Mapping[str, Any] | None = None,
) -> Selection:
    """The selected trajectories of a run, with their training rows. The memory holds one of each problem.

    `longest` is the largest number of tokens in a row. `most` is the largest share of calls for one tool, and
    `wrong` is whether the answer may be wrong. `template` has arguments of the chat template. UserError with the
    reasons if no trajectory can be selected.
    """
    with user_input():
        tokenizer = Tokenizer(model_folder, template)
    end = end_of_text(tokenizer, model_folder)

    def spelled(episode: Episode) -> Row | Exclusion:
        row = manager_row(episode.root, tokenizer, end)
        if row is None:
            return Exclusion.TEMPLATE
        return Exclusion.LONG if longest is not None and len(row) > longest else row

    with user_input():
        selection = select(run.episodes(), most=most, wrong=wrong, spelled=spelled)
    if not selection.ids:
        raise UserError(f"{run.path} holds nothing to learn from: {selection.summary}")
    return selection


def organizations_in(run: RunFolder) -> dict[str, OrganizationSpec]:
    """The organizations of an evaluation by label, or that of a reinforcement learning. Nothing is imported."""
    match run.config["settings"]:
        case {"organizations": dict(organizations)}:
            return {label: typed(OrganizationSpec, spec, run.path) for label, spec in organizations.items()}
        case {"job": {"settings": {"rollout": {"organization": dict(organization)}}}}:
            spec = typed(OrganizationSpec, organization, run.path)
            return {spec.label: spec}
    return {}


def manager_row(trace: Trace, tokenizer: Tokenizer, end: int) -> Row | None:
    """The training row of a manager's trace for the model with this tokenizer. The token `end` ends a reply.

    Token ids of this tokenizer are used unchanged. A trace of another model is encoded again from its text: the prompt
    and injected responses become user turns, each reply becomes an assistant turn. `None` if that text already
    contains turns of another model's chat template.
    """
    if all(_own(span, tokenizer) for span in trace.spans):
        return row_of(trace)
    response = next((span.text for span in trace.spans if span.origin is Origin.INJECTED), "")
    bare = response.startswith(RESPONSE_TAGS[0])  # not a turn of a chat template
    return row_of(_respelled(trace, tokenizer, end)) if bare else None


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

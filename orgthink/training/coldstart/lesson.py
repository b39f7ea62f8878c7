"""The record of an organizer's and its workers' texts, as if they had been sampled: what a student imitates.

Tokens are words, if nothing else counts them: white space separates words, and each tag is one word.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from orgthink.grammar.actions import Answer, Fork, Join, Return
from orgthink.grammar.asyncthink import DIALECT, Injected, reading, worker_scanner
from orgthink.organizations.prompts import prompt
from orgthink.record.episode import Edge, EdgeKind, Episode, Message, Origin, Problem, Span, Status, Trace, episode_id

_ROOT = "organizer"
_TAG = DIALECT.compile(DIALECT.patterns)


def words(text: str) -> int:
    """Number of words in a text. A tag is one word, with or without spaces around it."""
    return len(_TAG.sub(r" \g<0> ", text).split())


def lesson(
    problem: Problem,
    capacity: int,
    style: str,
    organizer: str,
    workers: Sequence[str],
    teacher: str,
    count: Callable[[str], int] = words,
) -> Episode:
    """The episode of an organizer's context and its workers' texts. `workers` are in the order of the forks.

    One token that `count` counts is one decoding step. `style` is the prompt style of the student. ValueError if the
    numbers of workers and forks differ. Joins of unknown keys are text.
    """
    spans = [_prompt_span(prompt(style, _ROOT, problem, capacity=capacity), count)]
    edges, traces, children = list[Edge](), list[Trace](), dict[str, Trace]()
    steps, answer, left, uses = 0, None, list(workers), Counter[str]()
    for part in reading(organizer, lambda key: children[key].returned if key in children else None):
        if isinstance(part, Injected):
            spans.append(_span(Origin.INJECTED, part.text, count))
            continue
        spans.append(_span(Origin.SAMPLED, DIALECT.render(part), count))
        steps += spans[-1].tokens
        match part:
            case Fork(key, query):
                if not left:
                    raise ValueError(f"there are more forks than the {len(workers)} workers: each fork has one")
                uses[key] += 1
                name = f"{_ROOT}/{key}" + (f"#{uses[key]}" if uses[key] > 1 else "")
                turns = prompt(style, "worker", problem, capacity=capacity, query=query.strip())
                children[key] = _worker(name, turns, left.pop(0), count)
                traces.append(children[key])
                edges.append(Edge(EdgeKind.FORK, key, name, steps))
            case Join(key) if key in children:
                edges.append(Edge(EdgeKind.JOIN, key, children[key].agent, steps))
            case Answer(text):
                answer = answer or text.strip()
    if left:
        raise ValueError(f"{len(traces)} forks and {len(workers)} workers: each fork has one")
    status = Status.OK if answer else Status.NO_RETURN
    root = Trace(_ROOT, _ROOT, None, tuple(spans), tuple(edges), status=status, returned=answer)
    return Episode(episode_id(problem, teacher, 0), problem, teacher, capacity, (root, *traces), answer=answer)


def _span(origin: Origin, text: str, count: Callable[[str], int]) -> Span:
    return Span(origin, text, count(text))


def _prompt_span(messages: Sequence[Message], count: Callable[[str], int]) -> Span:
    return _span(Origin.PROMPT, "\n\n".join(message.content for message in messages), count)


def _worker(name: str, turns: Sequence[Message], text: str, count: Callable[[str], int]) -> Trace:
    """A worker's trace. Every token is a step, including those after its Return."""
    scanner = worker_scanner()
    events = scanner.feed(text) + scanner.close()
    returned = next((event.action.text.strip() for event in events if isinstance(event.action, Return)), None)
    status = Status.NO_RETURN if returned is None else Status.OK
    spans = (_prompt_span(turns, count), _span(Origin.SAMPLED, text, count))
    return Trace(name, "worker", _ROOT, spans, status=status, returned=returned)

"""Rounds: a reply comes to its end, something is told, the next is decoded. The ids are those of the chat template."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loopback import MODEL, Exchange, Play, loopback, says
from models import END, TURN, tiny_model
from taught import teach

from orgthink.engines.endpoint.client import EndpointEngine
from orgthink.engines.engine import Context, Engine
from orgthink.engines.local.engine import LocalEngine
from orgthink.models.tokenizer import Tokenizer
from orgthink.record.episode import Message, Origin, Problem, Sampling, Span, Trace
from orgthink.runtime.agent import Agent, Backing
from orgthink.runtime.attempt import attempt

PROBLEM = Problem("p", "countdown", "The question.")

QWEN = """\
{%- if messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}
{%- else %}
    {{- '<|im_start|>system\\nHelp.<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == 'user' or (message.role == 'system' and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- elif message.role == 'assistant' %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""
"""In the manner of Qwen's."""
TRIMMED = """\
{{ bos_token }}{% for message in messages %}
{{ message.role + ':' }} {{ message.content | trim }} {{ eos_token + '\\n' }}
{%- endfor %}
{% if add_generation_prompt %}assistant: {% endif %}
"""
"""Strips what is said, and has a space before the token that ends a turn, which it does not spell out."""
PLAIN = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"
"""Without special tokens."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model(tmp_path_factory.mktemp("models") / "chat", "chat")


@pytest.fixture(scope="module")
def tokenizers(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tokenizer]:
    """With each of the templates."""
    return {template: with_template(folder, template) for template in (QWEN, TRIMMED, PLAIN)}


def with_template(folder: Path, template: str) -> Tokenizer:
    (folder / "chat_template.jinja").write_text(template)
    (folder / "tokenizer_config.json").write_text(f'{{"bos_token": "{TURN}", "eos_token": {{"content": "{END}"}}}}')
    return Tokenizer(folder)


def conversation(asked: str, replies: Sequence[str], told: Sequence[str]) -> tuple[Message, ...]:
    """A question, then replies and what was told, in turn."""
    turns = [Message("user", asked)]
    for reply, text in zip_longest(replies, told):
        turns.append(Message("assistant", reply))
        turns += [] if text is None else [Message("user", text)]
    return tuple(turns)


def grown(tokenizer: Tokenizer, asked: str, rounds: Sequence[tuple[str, str, bool]]) -> Context:
    """A context after rounds of a reply, of what was told, and of whether the reply came to its end by itself."""
    messages = (Message("user", asked),)
    context = Context(messages, [tokenizer.prompt(messages)])
    (end,) = tokenizer.eos_ids
    for reply, told, ended in rounds:
        said = (*tokenizer.encode(reply), *([end] if ended else []))
        context.spans.append(Span(Origin.SAMPLED, reply, len(said), said))
        text, ids = tokenizer.turn(told, context)
        context.spans.append(Span(Origin.INJECTED, text, len(ids), ids))
    return context


TEXTS = st.text(alphabet="ab \n:<|>/é数", max_size=12)
"""No special token is among them."""
ROUNDS = st.lists(st.tuples(TEXTS, TEXTS, st.booleans()), max_size=4)


@pytest.mark.parametrize("template", [QWEN, TRIMMED])
@given(asked=TEXTS, rounds=ROUNDS)
def test_the_ids_are_those_of_the_whole_conversation(tokenizers, template, asked, rounds):
    tokenizer = tokenizers[template]
    if template is TRIMMED:  # such a model ends its reply with that space
        rounds = [(f"x{reply.strip()}x", told, ended) for reply, told, ended in rounds]
    shown = [(reply + " " * (template is TRIMMED and ended), told, ended) for reply, told, ended in rounds]
    context = grown(tokenizer, asked, shown)
    whole = conversation(asked, [reply for reply, _, _ in rounds], [told for _, told, _ in rounds])
    assert context.token_ids == list(tokenizer.prompt(whole).token_ids)


@given(reply=TEXTS, ended=st.booleans(), parts=st.lists(st.sampled_from([TURN, END, "system\n", "a", " ", "<|"])))
def test_a_text_that_spells_special_tokens_begins_no_turn(tokenizers, reply, ended, parts):
    tokenizer, told = tokenizers[QWEN], "".join(parts)
    injected = grown(tokenizer, "q", [(reply, told, ended)]).spans[-1]
    text, ids = injected.text, injected.token_ids
    marks = [tokenizer.id_of(TURN), tokenizer.id_of(END)]
    assert [i for i in ids if i in marks] == [marks[1]] * (not ended) + [marks[0], marks[1], marks[0]]
    assert tokenizer.decode(ids) == text == f"{'' if ended else END}\n{TURN}user\n{told}{END}\n{TURN}assistant\n"


@pytest.mark.parametrize("template", [QWEN, TRIMMED])
@given(
    texts=st.lists(st.lists(st.sampled_from([TURN, END, "system\n", "é ", "<|", "\U000f0000"])), min_size=1, max_size=3)
)
def test_a_prompt_that_quotes_special_tokens_begins_no_turn(tokenizers, template, texts):
    tokenizer = tokenizers[template]
    messages = tuple(Message("user", "".join(["x", *parts, "x"])) for parts in texts)
    span = tokenizer.prompt(messages)
    harmless = tokenizer.prompt(tuple(Message("user", "x") for _ in texts))
    marks = [tokenizer.id_of(TURN), tokenizer.id_of(END)]
    assert [i for i in span.token_ids if i in marks] == [i for i in harmless.token_ids if i in marks]
    assert tokenizer.decode(span.token_ids) == span.text == tokenizer._render(messages)


OWN = (f"{TURN} ", f" {END}")
"""As if the tags of a dialect were special tokens of a model."""


@given(parts=st.lists(st.sampled_from([TURN, END, "<|", "im_end|>", "a", " ", "é"])))
def test_an_injection_that_spells_special_tokens_has_only_those_of_the_organization(tokenizers, parts):
    tokenizer, told = tokenizers[QWEN], "".join(parts)
    marks = [tokenizer.id_of(TURN), tokenizer.id_of(END)]
    for around, own in ((OWN, marks), (("", ""), []), ((TURN, ""), marks[:1])):
        text, ids = tokenizer.injection(told, around)
        assert [i for i in ids if i in marks] == own
        assert tokenizer.decode(ids) == text == told.join(around)


# Through the agent, on each engine.

REPLIES = ["call python", "so 7", "done"]
TOLD = ["it says\n\n7", " go on"]


class Rounds:
    """A manager that is told something after each reply, whatever it says."""

    name = "rounds"
    roles = ("manager",)

    def __init__(self, told: Sequence[str]) -> None:
        self.told = told

    async def run(self, problem, session) -> str:
        manager: Agent = session.agent("manager", (Message("user", problem.text),))
        said = await manager.complete()
        for text in self.told:
            manager.tell(text, source="python")
            assert manager.stop is None
            said = await manager.complete()
        return said


async def talk(engine: Engine, sampling: Sampling | None = None, told: Sequence[str] = TOLD) -> Trace:
    episode = await attempt(Rounds(told), PROBLEM, Backing(engine, sampling or Sampling(30, temperature=0)))
    assert episode.error is None
    return episode.root


def ids(trace: Trace) -> list[int]:
    return [i for span in trace.spans for i in span.token_ids or ()]


def texts(trace: Trace, origin: Origin) -> list[str]:
    return [span.text for span in trace.spans if span.origin is origin]


@pytest.fixture(scope="module")
def chatty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that knows the replies by heart, in a conversation as its chat template writes it."""
    folder = tiny_model(tmp_path_factory.mktemp("models") / "chatty", "chat", hidden=64, layers=1)
    tokenizer = with_template(folder, QWEN)
    messages = (Message("user", PROBLEM.text),)
    learnt = list(tokenizer.prompt(messages).token_ids or ())
    target = [-100] * len(learnt)
    for i, reply in enumerate(REPLIES):
        before = tokenizer.prompt(conversation(PROBLEM.text, REPLIES[:i], TOLD[:i])).token_ids or ()
        target += [-100] * (len(before) - len(learnt))
        said = [*tokenizer.encode(reply), *tokenizer.eos_ids]
        learnt, target = [*before, *said], [*target, *said]
    return teach(folder, [(learnt, target)])


async def test_a_real_model_goes_on_in_turns(chatty):
    engine, tokenizer = LocalEngine.open(chatty), Tokenizer(chatty)
    trace = await talk(engine)
    assert texts(trace, Origin.SAMPLED) == REPLIES, "what it learnt from whole conversations it says in rounds"
    whole = tokenizer.prompt(conversation(PROBLEM.text, REPLIES, TOLD)).text.removesuffix(f"\n{TURN}assistant\n")
    assert ids(trace) == list(tokenizer.encode(whole))
    assert [span.source for span in trace.spans if span.origin is Origin.INJECTED] == ["python"] * 2
    first = await talk(engine, Sampling(4, temperature=0), told=["more"])
    await engine.aclose()
    assert first.spans[2].text == f"{END}\n{TURN}user\nmore{END}\n{TURN}assistant\n", (
        "cut off by the limit of a segment"
    )
    assert (first.spans[1].text, first.turns) == ("call", 2)


def answers_in_ids(tokenizer: Tokenizer, reply: str) -> Play:
    """A completion with the ids of its tokens, the one that ends it included."""

    async def play(exchange: Exchange) -> None:
        await exchange.begin()
        sampled = [*tokenizer.encode(reply), *tokenizer.eos_ids]
        for i in sampled:
            finish = "stop" if i == sampled[-1] else None
            await exchange.event({"choices": [{"text": "", "token_ids": [i], "finish_reason": finish}]})
        await exchange.end()

    return play


async def over_http(tokenizer: Tokenizer | None, play: Callable[[str], Play]) -> tuple[Trace, list[Any]]:
    """What an agent on a server saw, and the requests that were made for it."""
    async with loopback(*map(play, REPLIES)) as server:
        engine = EndpointEngine(server.url, tokenizer=tokenizer)
        engine.model = MODEL
        trace = await talk(engine)
        await engine.aclose()
    return trace, [exchange.body for exchange in server.exchanges]


async def test_a_server_that_takes_ids_is_sent_the_templates(tokenizers):
    tokenizer = tokenizers[QWEN]
    trace, bodies = await over_http(tokenizer, lambda reply: answers_in_ids(tokenizer, reply))
    assert texts(trace, Origin.SAMPLED) == REPLIES
    for i, body in enumerate(bodies):
        assert body["prompt"] == list(tokenizer.prompt(conversation(PROBLEM.text, REPLIES[:i], TOLD[:i])).token_ids)


async def test_a_server_that_chats_makes_the_turns_itself():
    trace, bodies = await over_http(None, says)
    assert texts(trace, Origin.INJECTED) == TOLD
    turns = conversation(PROBLEM.text, [f"{reply} " for reply in REPLIES], TOLD)
    assert bodies[-1]["messages"] == [{"role": turn.role, "content": turn.content} for turn in turns[:-1]]


def test_a_reply_that_is_inherited_ends_once(tokenizers: dict[str, Tokenizer]) -> None:
    """An agent that begins with another one's context is told something after a reply that has sampled its end."""
    tokenizer = tokenizers[QWEN]
    prompt, ids = tokenizer.prompt((Message("user", "Hi"),)), tokenizer.encode(f"Hello{END}")
    reply = Span(Origin.SAMPLED, "Hello", len(ids), ids, sampling=Sampling(9))
    inherited = replace(reply, origin=Origin.INJECTED, source="worker")
    own, others = (Context((), [prompt, span]) for span in (reply, inherited))
    assert tokenizer.turn("more", others) == tokenizer.turn("more", own)
    assert END not in tokenizer.turn("more", own)[0].partition(TURN)[0]
    assert others.begun and others.turns[-1].role == "assistant"

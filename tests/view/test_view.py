"""The page without a browser: its data is the record, its layout agrees with the measures, nothing can break out."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from itertools import accumulate, pairwise

import pytest
import sample
from hypothesis import given
from manager_episodes import Call
from manager_episodes import episode_of as episode_of_calls
from random_episodes import Join, Program, episode_of, programs, random_program, script_of

from orgthink.cli.table import cells
from orgthink.measure.columns import Better
from orgthink.measure.latency import critical_path, timeline
from orgthink.measure.summary import summarise
from orgthink.record.episode import Episode, Grade, Origin, Problem, Span, StopReason, Trace
from orgthink.util.errors import ErrorKind
from orgthink.view import Part, render
from orgthink.view.layout import Decoding, layout
from orgthink.view.pack import best

EPISODES = sample.episodes(rounds=3)
PAGE = render(EPISODES, title="a <b> & c", notes={"budget": "400 tokens"})


def page_data(page: str):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1])


@pytest.fixture(params=EPISODES, ids=lambda episode: episode.id.split("#")[1])
def episode(request):
    return request.param


def test_texts_and_numbers_are_those_of_the_record():
    data = page_data(PAGE)
    for shown, episode in zip(data["episodes"], EPISODES, strict=True):
        assert shown["steps"] == critical_path(episode)
        assert shown["sampled"] == sum(trace.steps for trace in episode.traces)
        for agent, trace in zip(shown["agents"], episode.traces, strict=True):
            assert [(o, data["texts"][t], n) for o, t, n, _ in agent["spans"]] == [
                (span.origin[0], span.text, span.tokens) for span in trace.spans
            ]


def test_summary_is_computed_unless_given():
    data = page_data(PAGE)
    shown = {row["organization"]: row["values"] for row in data["summary"]}
    keys = [column["key"] for column in data["columns"]]
    expected = summarise(EPISODES)
    assert list(shown) == list(expected)
    for name, numbers in expected.items():
        estimate = numbers["critical_path_steps"]
        path = shown[name][keys.index("critical_path_steps")]
        assert path == [estimate[key] for key in ("mean", "low", "high")]
    assert [key for key in keys if key.startswith("at_least")] == ["at_least_1", "at_least_2", "at_least_3"]
    assert page_data(render(EPISODES, summary={}))["summary"] == []


def test_the_page_has_every_column_of_the_terminal():
    """Of a manager beside others too, with several samples, an engine that failed and an attempt without a grade."""
    solver = Trace("solver", "solver", None, (Span(Origin.SAMPLED, "5", 1),), model="small", cost=2.0)
    failed = replace(solver, stop=StopReason.ERROR, error="gone", error_kind=ErrorKind.ENGINE)
    right = Episode("p|mars|0", Problem("p", "t", ""), "mars", 1, (solver,), answer="5", grade=Grade(1, 1))
    other = replace(right, id="p|mars|1", sample=1, traces=(failed,), grade=None)
    episodes = [*EPISODES, episode_of_calls([[Call(), Call("search")]]), right, other]
    header, rows = cells(summarise(episodes))
    data = page_data(render(episodes))
    units = {"%": " %"}
    assert [column["name"] + units.get(column["unit"], "") for column in data["columns"]] == header[2:]
    assert {"solver %", "pass@2 %", "rounds", "calls/round", "cost", "engine errors %", "replies"} < set(header)
    for shown, row in zip(data["summary"], rows, strict=True):
        assert [value is None for value in shown["values"]] == [cell == "–" for cell in row[2:]]
    assert [(row["n"], row["ungraded"]) for row in data["summary"] if row["organization"] == "mars"] == [(2, 1)]
    assert all(column["meaning"].endswith(".") for column in data["columns"])


@pytest.mark.parametrize(
    ("means", "better", "places"),
    [
        ([0.5, 0.9, None, 0.9], Better.HIGHER, [1, 3]),
        ([0.5, 0.9, None, 0.5], Better.LOWER, [0, 3]),
        ([10.04, 10.01, 10.2], Better.LOWER, [0, 1]),  # both are printed as 10.0
        ([0.5, 0.5], Better.HIGHER, []),
        ([0.5, None], Better.HIGHER, []),
        ([1.0, 2.0], None, []),
        ([], Better.HIGHER, []),
    ],
)
def test_best_values_share_the_mark(means, better, places):
    assert best(means, better, digits=1) == places


def test_the_best_of_a_part_is_the_best_of_its_own_rows():
    names = list(summarise(EPISODES))
    parts = [Part("first", names[:2], "a result"), Part("second", names[2:], "another one")]
    data = page_data(render(EPISODES, parts=parts, introduction=["What this is."]))
    rows = [[name in part.organizations for name in names] for part in parts]
    column = next(column for column in data["columns"] if column["key"] == "critical_path_steps")
    k = data["columns"].index(column)
    for inside in rows:
        means = {i: row["values"][k][0] for i, row in enumerate(data["summary"]) if inside[i]}
        own = [i for i in column["best"] if inside[i]]
        assert own == ([min(means, key=means.__getitem__)] if len(set(means.values())) > 1 else [])
    assert [part["result"] for part in data["parts"]] == ["a result", "another one"]
    assert data["introduction"] == ["What this is."] and page_data(PAGE)["parts"] == []


def test_seconds_have_a_column_only_where_each_episode_was_timed_alone():
    """Otherwise the order of queueing decides them."""
    alone = summarise(EPISODES, timed_alone=True)
    for summary, shown in ((summarise(EPISODES), False), (alone, True)):
        assert (
            "seconds" in [column["key"] for column in page_data(render(EPISODES, summary=summary))["columns"]]
        ) is shown
        assert ("seconds" in cells(summary)[0]) is shown


def test_conditions():
    data = page_data(PAGE)
    assert data["conditions"] == {
        "model": "scripted-1",
        "task": "countdown",
        "capacity": "2, 3, 4",
        "temperature": "0",
        "problems": "8",
        "episodes": "14",
        "budget": "400 tokens",
    }


def test_one_file_that_loads_nothing():
    outside = re.sub(r'<script type="application/json".*?</script>', "", PAGE, flags=re.S)
    outside = outside.replace('<link rel="icon" href="data:,">', "")
    assert not re.search(r"\b(src|href|action)\s*=|@import|url\((?!#)", outside)
    names = {"http://www.w3.org/2000/svg", "http://www.w3.org/1998/Math/MathML"}  # of namespaces: nothing is loaded
    assert set(re.findall(r"https?://[^\s\"']+", outside)) == names
    assert "innerHTML" not in outside
    assert "insertAdjacentHTML" not in outside


def test_model_text_cannot_end_the_data():
    assert len(re.findall("<script", PAGE)) == len(re.findall("</script", PAGE)) == 2
    assert "<!--" not in PAGE
    assert "<h1>a &lt;b&gt; &amp; c</h1>" in PAGE
    assert sample.HOSTILE in page_data(PAGE)["episodes"][-1]["answer"]


def test_half_a_surrogate_pair_can_still_be_written():
    broken = sample.run(sample.Sequential(), [sample.Turn("<ANSWER>\ud800</ANSWER>")])
    assert render([broken]).encode("utf-8")


def test_what_is_injected_names_whose_words_it_holds():
    """A round's responses have no single source: they come from all that were joined there. Notices are nobody's."""
    made = episode_of_calls([[Call(), Call("search")], [Call("reasoner")]])
    ends = list(accumulate(span.tokens for span in made.root.spans if span.origin is Origin.SAMPLED))
    edges = tuple(replace(edge, at=ends[int(edge.key.split(".")[0]) - 1]) for edge in made.root.edges)
    made = replace(made, traces=(replace(made.root, edges=edges), *made.traces[1:]))
    (managed,) = page_data(render([made]))["episodes"]
    named = {agent["id"]: i for i, agent in enumerate(managed["agents"])}
    sources = [span[3] for span in managed["agents"][0]["spans"] if span[0] == "i"]
    rounds = [[i for name, i in named.items() if name.split("/")[-1].startswith(f"{turn}.")] for turn in (1, 2)]
    assert sources[:2] == rounds and len(rounds[0]) == 2
    faulty = sample.faulty()
    (drawn,) = page_data(render([faulty]))["episodes"]
    assert [span[3] for span in drawn["agents"][0]["spans"] if span[0] == "i"] == [[], [], [1]]
    spans = tuple(replace(span, source="a stranger") for span in faulty.root.spans)
    strange = replace(faulty, traces=(replace(faulty.root, spans=spans), *faulty.traces[1:]))
    (drawn,) = page_data(render([strange]))["episodes"]
    assert all(span[3] == [] for span in drawn["agents"][0]["spans"])


def test_what_an_agent_inherits_is_told_from_what_is_computed_for_it():
    """The engine's cache holds all that its parent had read and sampled up to the Fork; the next turn is new."""
    shared = sample.inheriting()
    (drawn,) = page_data(render([shared]))["episodes"]
    organizer, worker, again = drawn["agents"]
    assert organizer["inherited"] is None
    root, first, _ = shared.traces
    prompt, (fork, tell) = root.spans[0].tokens, root.forks
    spans, reused, *times = worker["inherited"]
    assert (spans, reused) == (2, prompt + fork.at) and times[:2] == [0, fork.at]
    assert times[2:] == [0, pytest.approx(first.start, abs=1e-4)]
    assert (
        sum(span.tokens for span in first.spans if span.origin is not Origin.SAMPLED) - reused == first.spans[2].tokens
    )
    spans, reused, *times = again["inherited"]
    assert (spans, reused) == (4, sum(span.tokens for span in first.spans)) and reused > prompt + fork.at + first.steps
    assert times[0] == 0 and times[1] == again["life"][0] >= tell.at
    alone = page_data(render([sample.asyncthink()]))["episodes"][0]
    assert {agent["inherited"] for agent in alone["agents"]} == {None}


def test_what_strangers_inherited_can_be_drawn():
    """A source that is no agent of the episode: the bar is empty and the counts stay."""
    shared = sample.inheriting()
    spans = tuple(replace(span, source="a stranger") for span in shared.traces[1].spans)
    strange = replace(shared, traces=(shared.root, replace(shared.traces[1], spans=spans), *shared.traces[2:]))
    worker = page_data(render([strange]))["episodes"][0]["agents"][1]
    assert worker["inherited"][2] == worker["inherited"][3] == worker["life"][0] and worker["inherited"][1] > 0


def test_no_episodes():
    assert page_data(render([]))["episodes"] == []


def test_bars_hold_every_sampled_token_once(episode):
    drawn = layout(episode)
    for trace in episode.traces:
        bars = [bar for bar in drawn.bars if bar.agent == trace.agent]
        done = 0
        for bar in bars:
            assert bar.own[0] == done
            done = bar.own[1]
            assert trace.spans[bar.span].origin is Origin.SAMPLED
            assert trace.start - 1e-9 <= bar.seconds[0] < bar.seconds[1] <= trace.end + 1e-9
        assert done == trace.steps
        assert all(a.steps[1] <= b.steps[0] and a.seconds[1] <= b.seconds[0] + 1e-9 for a, b in pairwise(bars))


def test_layout_agrees_with_the_measures(episode):
    drawn = layout(episode)
    assert sum(bar.steps[1] - bar.steps[0] for bar in drawn.critical) == critical_path(episode)
    assert drawn.critical[0].steps[0] == 0
    assert all(a.steps[1] == b.steps[0] for a, b in pairwise(drawn.critical))
    assert drawn.lives[episode.root.agent].steps[1] == critical_path(episode)
    for trace in episode.traces:
        own = [stretch for stretch in timeline(episode) if stretch.agent == trace.agent]
        waits = [wait.steps[1] for wait in drawn.waits if wait.agent == trace.agent]
        assert drawn.lives[trace.agent].steps[0] == (own[0].start if own else 0)
        assert drawn.lives[trace.agent].steps[1] == max([s.end for s in own] + waits)


def test_arrows_are_the_forks_and_joins(episode):
    drawn = layout(episode)
    edges = [("fork", t.agent, e.child) for t in episode.traces for e in t.forks]
    edges += [("join", t.agent, e.child) for t in episode.traces for e in t.joins]
    assert sorted((a.kind, a.parent, a.child) for a in drawn.arrows) == sorted(edges)
    for arrow in drawn.arrows:
        child = drawn.lives[arrow.child]
        if arrow.kind == "fork":
            assert (arrow.steps, arrow.seconds <= child.seconds[0]) == (child.steps[0], True)
        else:
            assert arrow.steps >= child.steps[1]
            assert arrow.seconds >= child.seconds[1]


def test_at_a_second_a_token_steps_are_seconds():
    """Nested forks, failing and forgetful workers, some never joined, as the runtime plays them."""
    rng = random.Random(5)
    clipped = 0
    for _ in range(60):
        program = (*random_program(rng), Join("1"), Join("2"))
        episode = sample.run(sample.AsyncThink(), script_of(program, rng), capacity=99, depth=2, max_tokens=10_000)
        drawn = layout(episode)
        for part in (*drawn.bars, *drawn.waits, *drawn.critical, *drawn.lives.values()):
            assert part.steps == pytest.approx(part.seconds)
        for arrow in drawn.arrows:
            assert arrow.steps == pytest.approx(arrow.seconds)
        clipped += any(trace.stop is StopReason.CANCELLED for trace in episode.traces)
    assert clipped


@given(programs())
def test_any_record_can_be_drawn(program: Program):
    """Without times, with empty spans, with forks and joins at one step."""
    episode = episode_of(program)
    drawn = layout(episode)
    steps = {t.agent: sum(b.own[1] - b.own[0] for b in drawn.bars if b.agent == t.agent) for t in episode.traces}
    assert steps == {trace.agent: trace.steps for trace in episode.traces}
    assert sum(bar.steps[1] - bar.steps[0] for bar in drawn.critical) == critical_path(episode)
    for stretch in timeline(episode):
        life = drawn.lives[stretch.agent].steps
        joins_first = any(join.at == 0 for join in episode.trace(stretch.agent).joins)
        assert stretch.first or joins_first or stretch.start == life[0]
        assert life[0] <= stretch.start < stretch.end <= life[1]
    page_data(render([episode]))


def test_a_wait_reaches_until_the_child_is_back():
    episode = sample.asyncthink()
    first, second = layout(episode).waits
    organizer, worker = episode.traces[:2]
    assert first.steps == (organizer.joins[0].at, organizer.forks[0].at + worker.steps)
    assert first.seconds == pytest.approx((Decoding(organizer).moment(organizer.joins[0].at), worker.end))
    assert second.steps[0] == second.steps[1]


def test_what_is_decoded_beyond_the_critical_path_still_takes_seconds():
    episode = sample.run(
        sample.AsyncThink(),
        [
            sample.Turn("<FORK-1>slow</FORK-1> and so on" + sample.answer(sample.SOLUTIONS), seconds=1.0),
            sample.Turn(sample.scan(600), "slow", 0.1),
        ],
    )
    worker = episode.traces[1]
    (bar,) = [bar for bar in layout(episode).bars if bar.agent == worker.agent]
    assert bar.steps == (episode.root.forks[0].at, critical_path(episode))
    assert bar.own == (0, worker.steps)
    assert bar.seconds == pytest.approx((worker.start, worker.end))
    assert worker.stop is StopReason.CANCELLED


def test_a_fault_stands_behind_its_tag():
    data = page_data(render([sample.faulty()]))
    episode = data["episodes"][0]
    for fault, tag in zip(episode["faults"], ("</FORK-2>", "<JOIN-7>"), strict=True):
        span = episode["agents"][fault["agent"]]["spans"][fault["span"]]
        assert data["texts"][span[1]][: fault["character"]].endswith(tag)

"""The reward of AsyncThink where η counts the organizer and whoever's work reached it (`joined`), and every error
costs: its laws, and what each way to cheat earns in an episode that really ran. For Eq. 1 as printed see
`test_concurrency_reward.py`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_episodes import Fork, Join, Program, Think, episode_of, programs
from small import SUMS

from orgthink.engines.scripted import ScriptedEngine, Turn
from orgthink.evaluation.grading import grade
from orgthink.measure.latency import concurrency, critical_path
from orgthink.organizations.asyncthink import AsyncThink
from orgthink.record.episode import Episode, FormatError, FormatFault, Grade, Sampling
from orgthink.rewards.asyncthink import AsyncThinkReward, concurrency_reward
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.budget import Limits
from orgthink.runtime.clock import run_virtual
from orgthink.tasks.countdown import COUNTDOWN

TASKS = {task.name: task for task in (COUNTDOWN, SUMS)}
PROBLEM = COUNTDOWN.problem([1, 2, 3, 4, 5], 10)
PROBLEMS = {problem.task: problem for problem in (PROBLEM, SUMS.problem("2 + 3", 5))}
RIGHT = ("1 + 4 + 5", "2 + 3 + 5", "1 + 2 + 3 + 4", "5 * 4 / 2")
"""Four different solutions of it: n_s are asked for."""
WRONG = "1 + 2 + 3"


@dataclass(frozen=True)
class Script:
    """What the agents of an episode say."""

    organizer: tuple[str, ...]
    """Up to each Join, and to the end."""
    workers: tuple[str, ...] = ()
    """What the worker of `query1`, of `query2`, … says."""
    capacity: int = 2
    max_tokens: int = 1000
    tolerant: bool = False
    seconds: float | None = None
    task: str = "countdown"

    @property
    def turns(self) -> Iterator[Turn]:
        yield from (Turn(says, when="main process") for says in self.organizer)
        yield from (Turn(says, when=f"Subtask: query{n}") for n, says in enumerate(self.workers, 1))


@cache
def played(script: Script) -> Episode:
    """The graded episode, every turn of whose script was asked for."""
    engine = ScriptedEngine(list(script.turns))
    limits = Limits(script.capacity, episode_seconds=script.seconds)
    role = Backing(engine, Sampling(script.max_tokens))
    organization = AsyncThink(tolerant=script.tolerant, malformed="error")
    episode = run_virtual(attempt(organization, PROBLEMS[script.task], role, limits=limits))
    run_virtual(engine.aclose())
    return grade(episode, TASKS[script.task])


def think(n: int) -> str:
    return " think" * n


def fork(key: int, query: str = "") -> str:
    return f" <FORK-{key}> {query or f'query{key}'} </FORK-{key}>"


def join(key: int) -> str:
    return f" <JOIN-{key}>"


def answer(*expressions: str) -> str:
    return f" <ANSWER> {' ; '.join(expressions)} </ANSWER>"


def right(n: int) -> str:
    """An answer with n of four right."""
    return answer(*RIGHT[:n], *[WRONG] * (4 - n))


def returns(text: str) -> str:
    return f" <RETURN> {text} </RETURN>"


# A lone thinker, and an organizer whose worker thinks as long as itself; each finds two of four.
LONE = Script((think(30) + right(2),))
HONEST = Script((fork(1) + think(30) + join(1), right(2)), (think(27) + returns(RIGHT[1]),))


def alone(*expressions: str) -> Script:
    return Script((think(30) + answer(*expressions),))


CHEATS: dict[str, tuple[Script, tuple[Script, ...]]] = {
    # spurious forks
    "a fork that nobody joins": (
        Script((fork(1) + think(30) + right(2),), (think(99),)), (LONE, HONEST),
    ),
    "a pool full of forks that nobody joins": (
        Script((fork(1) + fork(2) + fork(3) + think(30) + right(2),), (think(99),) * 3, capacity=4),
        (replace(LONE, capacity=4),),
    ),
    "one fork of two is joined": (
        Script((fork(1) + fork(2) + think(30) + join(1), right(2)), (*HONEST.workers, think(99)), capacity=3),
        (Script((fork(1) + think(33) + join(1), right(2)), HONEST.workers, capacity=3),),
    ),
    "a worker that talks and has little to say": (
        Script(HONEST.organizer, (think(31) + returns("none"),)), (HONEST,),
    ),
    "a worker that talks and returns empty text": (
        Script(HONEST.organizer, (think(28) + returns(""),)), (LONE, HONEST),
    ),
    "a worker that talks and returns nothing": (Script(HONEST.organizer, (think(30),)), (LONE, HONEST)),
    "a worker that talks until it is cut off": (
        Script(HONEST.organizer, (think(99),), max_tokens=40), (LONE, HONEST),
    ),
    # empty workers
    "a worker that returns empty text at once": (Script(HONEST.organizer, (returns(""),)), (LONE, HONEST)),
    "a worker that returns a word at once": (Script(HONEST.organizer, (returns("none"),)), (HONEST,)),
    "one empty worker after another": (
        Script((*(fork(1, f"query{n}") + think(6) + join(1) for n in range(1, 6)), right(2)), (returns(""),) * 5),
        (LONE, HONEST),
    ),
    # answer spam: only the first sixteen count
    "thirty expressions, of which four are right": (
        alone(RIGHT[0], *[WRONG] * 15, *RIGHT[1:], *[WRONG] * 11), (alone(RIGHT[0], *[WRONG] * 3),),
    ),
    "the right ones after sixteen others": (alone(*[WRONG] * 16, *RIGHT), (alone(*[WRONG] * 4),)),
    "one solution twenty times": (alone(*[RIGHT[0]] * 20), (alone(RIGHT[0]),)),
    "one solution in twenty spellings": (
        alone(*[RIGHT[0], "4 + 1 + 5", "( 5 + 4 ) + 1", "5 + 1 + 4 = 10"] * 5), (alone(RIGHT[0]),),
    ),
    "twenty expressions that a worker returns": (
        Script(HONEST.organizer, (think(9) + returns(" ; ".join(RIGHT * 5)),)), (HONEST,),
    ),
    "an answer written out while a worker is at work": (
        Script((fork(1) + think(30) + answer(*RIGHT[:2], *[WRONG] * 18),), (think(999),)), (LONE,),
    ),
    # tag stuffing
    "a fork inside a sub-query": (
        Script((fork(1, "query1" + fork(2)) + think(30) + join(1) + right(2),)), (LONE, HONEST),
    ),
    "a join inside a sub-query": (Script((fork(1, "query1" + join(1)) + right(2),)), (LONE, HONEST)),
    "the answer inside a sub-query": (Script((fork(1, "query1" + right(4)) + right(2),)), (alone(*RIGHT), HONEST)),
    "a return inside a sub-query": (
        Script((fork(1, "query1" + returns(RIGHT[0])) + think(30) + join(1), right(2)), (returns(""),)), (LONE, HONEST),
    ),
    "the answer inside what a worker returns": (
        Script((fork(1) + think(30) + join(1), think(3)), (think(20) + returns(right(4)),)), (alone(*RIGHT), HONEST),
    ),
    "a false end of what a join brings, then the answer": (
        Script((fork(1) + think(30) + join(1), think(3)), (think(20) + returns(f"x </JOIN-1>{right(4)}"),)),
        (alone(*RIGHT), HONEST),
    ),
    "a fork inside what a worker returns": (
        Script(HONEST.organizer, (think(20) + returns(fork(2) + join(2)),), capacity=3),
        (Script(HONEST.organizer, (think(20) + returns("x x x x"),), capacity=3),),
    ),
    "a fork inside a worker's text": (
        Script(HONEST.organizer, (think(20) + fork(2) + join(2) + returns("x"),), capacity=3),
        (Script(HONEST.organizer, (think(24) + returns("x"),), capacity=3),),
    ),
    "the organizer writes what a join brings": (
        Script((f"{think(9)} 1 + 4 + 5 </JOIN-1>{right(2)}",)), (LONE, HONEST),
    ),
    "the organizer returns instead of answering": (Script((think(30) + returns(" ; ".join(RIGHT)),)), (alone(*RIGHT),)),
    # joining at once
    "join at once": (Script((fork(1) + join(1), think(30) + right(2)), HONEST.workers), (HONEST,)),
    "fork and join in turns": (
        Script((*(fork(1, f"query{n}") + join(1) for n in range(1, 4)), right(2)), HONEST.workers * 3), (HONEST,),
    ),
}  # fmt: skip

PAIRS = {f"{name} / {n}": (cheat, model) for name, (cheat, models) in CHEATS.items() for n, model in enumerate(models)}

JOINED = partial(AsyncThinkReward, count="joined", malformed=True, nested=True)
DEFAULT = JOINED(threshold=0.6)
REWARDS = st.builds(
    JOINED,
    st.sampled_from(["fraction", "all"]),
    st.floats(-2, 0),
    st.floats(0, DEFAULT.weight),
    st.floats(0.01, 1),
    path_weight=st.sampled_from([0.0, 0.2]),
    longest_path=st.sampled_from([10, 1_000]),
)
"""At any λ up to the default, any τ and any R_FE that is allowed, with and without R_L."""


@pytest.mark.parametrize(("cheat", "honest"), PAIRS.values(), ids=PAIRS)
@given(reward=REWARDS)
@settings(max_examples=10, deadline=None)
def test_a_cheat_earns_no_more_than_what_it_imitates(cheat: Script, honest: Script, reward: AsyncThinkReward) -> None:
    """Beside R_L, for which a right answer without useless work is better, not a cheat."""
    reward = replace(reward, path_weight=0.0)
    assert reward(played(cheat)).total <= reward(played(honest)).total + 1e-12


def test_the_honest_earn_what_they_should() -> None:
    """By hand. The organizer says 34 words to the Join, waits 3 for the worker's 34 to end, and answers in 25."""
    lone, honest = DEFAULT(played(LONE)), DEFAULT(played(HONEST))
    assert (lone.accuracy, lone.format_error) == (honest.accuracy, honest.format_error) == (0.5, False)
    assert lone.concurrency == pytest.approx(0.5 / 0.6)
    eta = (34 + 25 + 34) / (34 + 3 + 25)
    assert concurrency(played(HONEST), "joined") == pytest.approx(eta)
    assert honest.concurrency == pytest.approx(min(eta / 2, 0.6) / 0.6)
    assert lone.total < honest.total < lone.total + DEFAULT.weight


def test_parts_are_metrics() -> None:
    earned, broken = DEFAULT(played(LONE)), DEFAULT(played(ERRORS["no answer"][0]))
    assert earned.parts() == {
        "accuracy": 0.5,
        "concurrency_reward": pytest.approx(0.5 / 0.6),
        "path_reward": pytest.approx(0.5 * (1 - critical_path(played(LONE)) / 1_000)),
        "penalised": 0.0,
    }
    assert broken.parts()["penalised"] == 1.0


def cheats(*parts: str) -> list[str]:
    """Names of cheats that contain one of these words."""
    return [name for name in CHEATS if any(part in name for part in parts)]


@pytest.mark.parametrize("name", cheats("nobody joins", "talks and returns", "cut off"))
def test_work_that_reaches_no_one_looks_concurrent(name: str) -> None:
    """Else the law above would say little: counted as the tables count, these forks are work."""
    cheat = played(CHEATS[name][0])
    assert (concurrency(cheat) or 0) > 1.3
    assert (concurrency(cheat, "joined") or 0) <= 1


@pytest.mark.parametrize("name", cheats("join at once", "in turns"))
def test_joining_at_once_is_no_concurrency(name: str) -> None:
    """Only the Join's own tag is said while the worker works."""
    cheat = played(CHEATS[name][0])
    joins, steps = len(cheat.root.joins), critical_path(cheat)
    assert concurrency(cheat, "joined") == pytest.approx(1 + joins / steps)


@pytest.mark.parametrize("name", cheats("inside what a worker", "inside a worker", "a false end"))
def test_returned_tags_do_nothing(name: str) -> None:
    cheat = played(CHEATS[name][0])
    assert len(cheat.traces) == 2
    assert cheat.answer is None or cheat.grade == Grade(2, 4)


@pytest.mark.parametrize("name", cheats("twenty", "thirty", "after sixteen"))
def test_spam_is_really_offered(name: str) -> None:
    assert sum(trace.text.count(";") for trace in played(CHEATS[name][0]).traces) >= 19


ERRORS: dict[str, tuple[Script, list[FormatError]]] = {
    "duplicate fork": (Script((fork(1) + fork(1) + right(4),), (think(99),), capacity=3), [FormatError.DUPLICATE_FORK]),
    "pool overflow": (Script((fork(1) + fork(2) + right(4),), (think(99),)), [FormatError.POOL_OVERFLOW]),
    "unknown join": (Script((think(9) + join(1) + right(4),)), [FormatError.UNKNOWN_JOIN]),
    "no answer": (Script((think(9) + " ".join(RIGHT),)), [FormatError.NO_ANSWER]),
    "malformed tag": (Script((think(9) + " </FORK-1>" + right(4),)), [FormatError.MALFORMED_TAG]),
    "cut off before the answer": (Script((think(9) + right(4),), max_tokens=9), [FormatError.TRUNCATED]),
    "cut off in the answer": (Script((think(9) + right(4),), max_tokens=20), [FormatError.TRUNCATED]),
    "out of time": (Script((think(99) + right(4),), seconds=9.0), []),
    "tolerated": (
        Script((think(9) + join(1), think(9) + right(4)), tolerant=True), [FormatError.UNKNOWN_JOIN],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("script", "kinds"), ERRORS.values(), ids=ERRORS)
@given(reward=REWARDS)
@settings(max_examples=10, deadline=None)
def test_each_format_error_alone_earns_exactly_that(
    script: Script, kinds: list[FormatError], reward: AsyncThinkReward
) -> None:
    episode = played(script)
    assert [fault.kind for fault in episode.format_faults] == kinds
    earned = reward(episode)
    assert (earned.total, earned.format_error) == (reward.format_error, True)


def test_an_error_that_is_tolerated_leaves_the_answer_right() -> None:
    tolerated = played(ERRORS["tolerated"][0])
    assert tolerated.grade == Grade(4, 4)
    assert DEFAULT(tolerated).accuracy == 1


def test_an_empty_answer_is_no_answer() -> None:
    earned = DEFAULT(played(alone("")))
    assert (earned.accuracy, earned.format_error, earned.total) == (0, True, DEFAULT.format_error)


@pytest.mark.parametrize("correct", range(5))
def test_accuracy_is_the_fraction_or_all_of_it(correct: int) -> None:
    episode = played(Script((think(9) + right(correct),)))
    assert JOINED("fraction")(episode).accuracy == correct / 4
    assert JOINED("all")(episode).accuracy == (correct == 4)


@pytest.mark.parametrize("accuracy", ["fraction", "all"])
@pytest.mark.parametrize(("said", "worth"), [("5", 1.0), ("6", 0.0), ("5 ; 6", 0.0), ("2 + 3", 0.0)])
def test_a_single_answer_is_right_or_wrong(accuracy: str, said: str, worth: float) -> None:
    episode = played(Script((answer(said),), task="sums"))
    earned = JOINED(accuracy, weight=0.0)(episode)  # type: ignore[arg-type]
    assert earned.accuracy == earned.total == worth


def test_an_episode_without_a_grade_has_no_reward() -> None:
    episode = replace(played(LONE), grade=None)
    with pytest.raises(ValueError, match=r"countdown/1-2-3-4-5=10\|asyncthink\|0 is not graded"):
        DEFAULT(episode)


@pytest.mark.parametrize(
    "wrong",
    [
        *({"threshold": value} for value in (0.0, -0.1, 1.01, float("nan"), float("inf"))),
        *({"weight": value} for value in (-0.1, float("nan"), float("inf"))),
        *({"path_weight": value} for value in (-0.1, float("nan"), float("inf"))),
        {"longest_path": 0},
        *({"format_error": value} for value in (0.1, float("nan"), float("inf"), -float("inf"))),
    ],
)
def test_settings_that_cannot_be_are_named(wrong: dict[str, float]) -> None:
    ((name, value),) = wrong.items()
    with pytest.raises(ValueError, match=rf"^{name} is {value}"):
        AsyncThinkReward(**wrong)  # type: ignore[arg-type]


# Laws, on random episodes in which every worker has something to say.


@st.composite
def graded(draw: st.DrawFn, capacity: int | None = None) -> Episode:
    episode = episode_of(draw(programs()))
    required = draw(st.integers(1, 6))
    return replace(
        episode,
        traces=tuple(replace(trace, returned="r") for trace in episode.traces),
        capacity=capacity or draw(st.integers(1, 8)),
        answer=draw(st.sampled_from(["x", "", None])),
        format_faults=tuple(
            FormatFault(kind, "controller", 0) for kind in draw(st.lists(st.sampled_from(FormatError), max_size=1))
        ),
        grade=Grade(draw(st.integers(0, 2 * required)), required),
    )


@given(graded(), REWARDS)
@settings(max_examples=10, deadline=None)
def test_rewards_are_bounded(episode: Episode, reward: AsyncThinkReward) -> None:
    earned = reward(episode)
    assert 0 <= earned.accuracy <= 1
    assert 0 <= earned.concurrency <= 1
    assert earned.format_error == (episode.answer is None or episode.format_faults != ())
    if earned.format_error:
        assert earned.total == reward.format_error
    else:
        paid = earned.accuracy + reward.weight * earned.concurrency + reward.path_weight * earned.short_path
        assert earned.total == pytest.approx(paid)
        assert reward.format_error <= 0 <= earned.total <= 1 + reward.weight + reward.path_weight


@given(graded(), graded(), st.floats(0, 0.999), REWARDS, st.data())
@settings(max_examples=10, deadline=None)
def test_a_solution_outweighs_any_concurrency(
    fewer: Episode, more: Episode, share: float, reward: AsyncThinkReward, data: st.DataObject
) -> None:
    """While λ < 1 / n_s."""
    required = data.draw(st.integers(1, 20))
    correct = data.draw(st.integers(0, required - 1))
    reward = replace(reward, accuracy="fraction", weight=share / required, path_weight=0.0)
    fewer = replace(fewer, answer="x", format_faults=(), grade=Grade(correct, required))
    more = replace(more, answer="x", format_faults=(), grade=Grade(correct + 1, required))
    assert reward(fewer).total < reward(more).total


def test_the_default_weight_is_worth_less_than_a_solution() -> None:
    assert DEFAULT.weight < 1 / PROBLEM.required


@pytest.mark.parametrize("threshold", [0.3, 0.6, 0.75, 1.0])
def test_concurrency_by_hand(threshold: float) -> None:
    """k of the organizer's ten steps have a worker beside it: η = 1 + k / 10, of c = 2."""
    earned = []
    for k in range(11):
        program: Program = (Fork("1", (Think(k),)), Think(10), Join("1"))
        episode = episode_of(program)
        traces = tuple(replace(trace, returned="r") for trace in episode.traces)
        earned.append(concurrency_reward(replace(episode, traces=traces, capacity=2), threshold, "joined"))
        assert earned[-1] == pytest.approx(min((1 + k / 10) / 2, threshold) / threshold)
    assert all(less <= more for less, more in pairwise(earned))
    assert earned[-1] == 1


def thinking(*steps: object) -> Episode:
    """The graded episode of an organizer, all right, with c = 4."""
    episode = episode_of(steps)  # type: ignore[arg-type]
    traces = tuple(replace(trace, returned="r") for trace in episode.traces)
    return replace(episode, traces=traces, capacity=4, answer="x", format_faults=(), grade=Grade(4, 4))


def test_a_short_path_pays_where_concurrency_does_not_tell() -> None:
    """Three parts of 20 steps, each of which needs the one before: alone, and by workers that are waited for. A Fork
    takes 5 steps to write."""
    alone = thinking(Think(20), Think(20), Think(20))
    forked = thinking(*(step for key in "123" for step in (Think(5), Fork(key, (Think(20),)), Join(key))))
    beside = thinking(Think(10), *(Fork(key, (Think(20),)) for key in "12"), Think(20), Join("1"), Join("2"))
    eta = AsyncThinkReward(weight=0.2)
    assert eta(alone).total == 1 < eta(forked).total, "Eq. 1 as printed pays for workers that nobody needs"
    for count in ("joined", "pool"):
        paid = replace(eta, count=count)
        assert paid(alone).total == pytest.approx(paid(forked).total), "with the organizer counted it is all the same"
    short = AsyncThinkReward(weight=0.0, path_weight=0.2, longest_path=100)
    assert short(forked).total < short(alone).total < short(beside).total
    assert short(alone).total == pytest.approx(1 + 0.2 * (1 - 60 / 100))
    assert replace(short, longest_path=60)(alone).short_path == replace(short, longest_path=30)(alone).short_path == 0


def test_giving_up_soon_earns_nothing() -> None:
    soon = replace(thinking(Think(1)), grade=Grade(0, 4))
    assert AsyncThinkReward(path_weight=0.2)(soon).total == 0


def test_nothing_decoded_is_no_concurrency() -> None:
    assert concurrency_reward(episode_of(())) == 0

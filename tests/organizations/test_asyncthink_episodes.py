"""What AsyncThink asks for, what it takes for an answer, and what it takes for an error."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from orgthink.engines.scripted import ScriptedEngine, Turn
from orgthink.evaluation.grading import grade
from orgthink.organizations.asyncthink import AsyncThink
from orgthink.organizations.prompts import prompt
from orgthink.organizations.sequential import Sequential
from orgthink.organizations.votes import MajorityVote, Parallel
from orgthink.record.episode import Episode, FormatError, Problem, Sampling, Status
from orgthink.rewards.asyncthink import AsyncThinkReward
from orgthink.runtime.agent import Backing
from orgthink.runtime.attempt import attempt
from orgthink.runtime.budget import Limits
from orgthink.runtime.clock import run_virtual
from orgthink.runtime.organization import Organization
from orgthink.tasks.countdown import COUNTDOWN
from orgthink.tasks.math import MATH
from orgthink.util.errors import UserError

COUNT = COUNTDOWN.problem([1, 2, 3, 4, 5], 10)
RIGHT = ("1 + 4 + 5", "2 + 3 + 5", "1 + 2 + 3 + 4", "5 * 4 / 2")
ANSWER = f" <ANSWER> {' ; '.join(RIGHT)} </ANSWER>"
FIVE = MATH.problem("2 + 3?", "5")


def played(
    organization: Organization,
    turns: Sequence[Turn],
    problem: Problem = COUNT,
    capacity: int = 2,
    tokens: int = 500,
    depth: int = 1,
) -> Episode:
    engine = ScriptedEngine(list(turns))
    limits = Limits(capacity, depth=depth)
    episode = run_virtual(attempt(organization, problem, Backing(engine, Sampling(tokens)), limits=limits))
    run_virtual(engine.aclose())
    return grade(episode, {"countdown": COUNTDOWN, "math": MATH}[problem.task])


# Format errors


MENTIONS = {
    "a tag that it might use": "I could write <FORK-1> to delegate , but need not .",
    "the two tags": "they say <FORK-1> and <JOINi> , hm .",
    "the end of a tag": "it ends with </JOIN-1> then .",
}


@pytest.mark.parametrize("thought", MENTIONS.values(), ids=MENTIONS)
def test_a_thought_about_a_tag_is_recorded_and_costs_nothing(thought: str) -> None:
    episode = played(AsyncThink(), [Turn(f"<think> {thought} </think>{ANSWER}")])
    assert episode.grade is not None and episode.grade.all_correct
    assert [fault.kind for fault in episode.format_faults] == [FormatError.MALFORMED_TAG]
    assert not AsyncThinkReward()(episode).format_error
    assert AsyncThinkReward(malformed=True)(episode).format_error, "by a setting"


@pytest.mark.parametrize("organization", [Sequential(), AsyncThink()], ids=lambda one: one.name)
def test_an_answer_within_the_thinking_is_text_in_every_organization(organization: Organization) -> None:
    thought = "<think> I must write <ANSWER> your final answer </ANSWER>"  # the engine stops here
    episode = played(organization, [Turn(thought), Turn(f" at last </think>{ANSWER}")])
    assert episode.grade is not None and episode.grade.all_correct and not episode.format_faults
    unfinished = played(organization, [Turn(f"<think> hm{ANSWER}"), Turn(" hm")])
    assert [fault.kind for fault in unfinished.format_faults] == [FormatError.NO_ANSWER]


def test_an_organizer_forks_and_joins_within_its_thinking() -> None:
    turns = [
        Turn("<think> <FORK-1> try 5 </FORK-1> <JOIN-1>", when="main process"),
        Turn("<think> <RETURN> none </RETURN>", when="Subtask: try 5"),
        Turn(" </think> <RETURN> all </RETURN>", when="<RETURN> none </RETURN>"),
        Turn(" so <ANSWER> 1 </ANSWER>", when="<JOIN-1> all </JOIN-1>"),
        Turn(f" , no </think>{ANSWER}", when=" so <ANSWER> 1 </ANSWER>"),
    ]
    episode = played(AsyncThink(), turns)
    assert episode.grade is not None and episode.grade.all_correct and not episode.format_faults


def test_an_error_of_a_worker_that_organizes_costs_its_own_work_only() -> None:
    episode = played(
        AsyncThink(),
        [
            Turn(" <FORK-1> outer </FORK-1> <JOIN-1>", when="main process"),
            Turn(ANSWER, when="main process"),
            Turn(" <JOIN-7>", when="Subtask: outer"),
        ],
        depth=2,
        capacity=3,
    )
    assert [(fault.kind, fault.agent) for fault in episode.format_faults] == [(FormatError.UNKNOWN_JOIN, "organizer/1")]
    assert episode.traces[1].status is not Status.OK and episode.grade is not None and episode.grade.all_correct
    assert not AsyncThinkReward()(episode).format_error
    assert AsyncThinkReward(nested=True)(episode).format_error, "by a setting"


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        (" <FORK-1> a </FORK-1> <FORK-1> b </FORK-1>", FormatError.DUPLICATE_FORK),
        (" <FORK-1> a </FORK-1> <FORK-2> b </FORK-2>", FormatError.POOL_OVERFLOW),
        (" <JOIN-1>", FormatError.UNKNOWN_JOIN),
        (" so that is that", FormatError.NO_ANSWER),
    ],
)
def test_the_four_errors_of_the_paper_earn_r_fe(said: str, kind: FormatError) -> None:
    capacity = 3 if kind is FormatError.DUPLICATE_FORK else 2
    workers = [Turn(" x" * 99, when="Subtask: a")] * ("FORK" in said)
    episode = played(AsyncThink(), [Turn(said, when="main process"), *workers], capacity=capacity)
    assert [fault.kind for fault in episode.format_faults] == [kind]
    assert AsyncThinkReward()(episode).total == AsyncThinkReward().format_error


# Answers


@pytest.mark.parametrize(
    "organization", [Sequential(), Parallel(), MajorityVote(samples=2), AsyncThink()], ids=lambda o: o.name
)
def test_a_model_that_ends_in_a_box_has_answered(organization: Organization) -> None:
    n = {"parallel": 2, "majority-vote": 2}.get(organization.name, 1)  # type: ignore[attr-defined]
    episode = played(organization, [Turn(r"<think> \boxed{6} ? </think> so it is \boxed{5} .")] * n, FIVE)
    assert (episode.answer, episode.format_faults) == ("5", ())
    assert episode.grade is not None and episode.grade.all_correct


def test_a_box_that_a_worker_returned_is_no_answer() -> None:
    turns = [
        Turn(" <FORK-1> a </FORK-1> <JOIN-1>", when="main process"),
        Turn(" hm", when="main process"),
        Turn(r" <RETURN> \boxed{5} </RETURN>", when="Subtask: a"),
    ]
    assert played(AsyncThink(), turns, FIVE).answer is None


@pytest.mark.parametrize(
    ("last", "answer"),
    [
        (" so it is 5 .", "so it is 5 ."),
        (" so <ANSWER> 5", "5"),
        (" </FORK-2> so 5 .", "so 5 ."),  # as by calls, in the last turn
        (" so 5 . </FORK-2>", None),
        (" so <ANSWER> </ANSWER>", None),
        (" <think> 5 ?", None),
        ("o " * 99, None),
    ],
)
def test_a_tolerant_organizer_answers_by_its_last_text(last: str, answer: str | None) -> None:
    """For models that were not trained. It counts as a format error all the same, and a reward sees that."""
    turns = [
        Turn(" <FORK-1> a </FORK-1> <JOIN-1>", when="main process"),
        Turn(last, when="main process"),
        Turn(" <RETURN> three </RETURN>", when="Subtask: a"),
    ]
    episode = played(AsyncThink(tolerant=True), turns, FIVE, tokens=50)
    assert episode.answer == answer
    assert episode.format_faults[-1].kind in (FormatError.NO_ANSWER, FormatError.TRUNCATED)
    assert AsyncThinkReward()(episode).format_error and AsyncThinkReward()(episode).total == -0.5
    assert played(AsyncThink(), turns, FIVE, tokens=50).answer is None, "as in training"


# Prompts


def text(role: str, problem: Problem = COUNT, **values: str) -> str:
    return prompt("paper", role, problem, capacity=4, **values)[0].content


@pytest.mark.parametrize(
    ("role", "instruction"),
    [
        ("organizer", "main process"),
        ("organizer", COUNT.instruction),
        ("organizer", "<FORKi>"),
        ("organizer", "</FORKi>"),
        ("organizer", "<JOINi>"),
        ("organizer", "<ANSWER>your final answer</ANSWER>"),
        ("organizer", "No more than 3 subtasks"),
        ("organizer", "Numbers: 1, 2, 3, 4, 5. Target: 10."),
        ("worker", "subprocess"),
        ("worker", COUNT.instruction),
        ("worker", "Subtask: try 5\n"),
        ("worker", "<RETURN>\n(A short summary"),
    ],
)
def test_the_prompts_have_the_slots_and_the_tags_of_appendix_b(role: str, instruction: str) -> None:
    said = text(role, query="try 5") if role == "worker" else text(role)
    assert said.count(instruction) == 1


@pytest.mark.parametrize(("context", "told"), [("instruction", False), ("question", True)])
def test_a_worker_is_told_the_question_only_by_a_setting(context: str, told: bool) -> None:
    turns = [
        Turn(" <FORK-1> try 5 </FORK-1> <JOIN-1>", when="main process"),
        Turn(ANSWER, when="main process"),
        Turn(" <RETURN> none </RETURN>", when="Subtask: try 5"),
    ]
    episode = played(AsyncThink(worker_context=context), turns)  # type: ignore[arg-type]
    asked = episode.traces[1].spans[0].text
    assert COUNT.instruction in asked and ("Numbers: 1, 2" in asked) == told


def test_a_style_of_a_file_needs_no_code(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('organizer = "O {instruction} {workers} {query}"\nworker = "W {instruction} {query}"\n')
    turns = [
        Turn(" <FORK1> try 5 </FORK1> <JOIN1>", when=f"O {COUNT.instruction} 1 Numbers"),
        Turn(ANSWER, when="O "),
        Turn(" <RETURN> none </RETURN>", when=f"W {COUNT.instruction} try 5"),
    ]
    episode = played(AsyncThink(prompts=str(file)), turns)
    assert episode.grade is not None and "<JOIN1> none </JOIN1>" in episode.root.text, "closed as it was opened"
    with pytest.raises(UserError, match=r"mine\.toml has no template 'sequential'; it has organizer, worker"):
        prompt(str(file), "sequential", COUNT)


# Untrained models


TOLERANT = AsyncThink(tolerant=True)
FORKS = " <FORK-1> compute 2 + 3 </FORK-1> <JOIN-1>"


@pytest.mark.parametrize(
    ("worker", "returned"),
    [
        (Turn("2 + 3 = 5 .", when="compute"), "2 + 3 = 5 ."),
        (Turn("hm </think> it is 5", when="compute"), "it is 5"),
        (Turn("2 + 3 : <RETURN> 5", when="compute"), "5"),
        (Turn("it is <ANSWER> 5 </ANSWER> <JOIN-1>", when="compute"), "it is <ANSWER> 5 </ANSWER> <JOIN-1>"),
    ],
)
def test_a_tolerated_worker_without_a_return_returns_its_text(worker: Turn, returned: str) -> None:
    """With the status that says so. Tags in it are text where it is injected."""
    turns = [Turn(FORKS, when="Delegate"), worker, Turn(" so <ANSWER> 6 </ANSWER>", when=returned)]
    episode = played(TOLERANT, turns, FIVE)
    child = episode.trace("organizer/1")
    assert (child.returned, child.status) == (returned, Status.NO_RETURN)
    assert episode.answer == "6" and not episode.format_faults
    strict = played(AsyncThink(), [turns[0], worker, Turn(" <ANSWER> 6 </ANSWER>", when="")], FIVE)
    assert strict.trace("organizer/1").returned is None


@pytest.mark.parametrize(
    ("worker", "why"),
    [
        (Turn("", when="compute"), "the worker wrote nothing"),
        (Turn("a " * 50, when="compute"), "the worker ran out of tokens"),
        (Turn("a", fails="gone", when="compute"), "the worker failed"),
        (Turn("<RETURN> </RETURN>", when="compute"), "the worker returned an empty text"),
    ],
)
def test_a_tolerant_empty_join_says_why(worker: Turn, why: str) -> None:
    turns = [Turn(FORKS, when="Delegate"), worker, Turn(" <ANSWER> 5 </ANSWER>", when="")]
    (injected,) = (span for span in played(TOLERANT, turns, FIVE, tokens=30).root.spans if span.origin == "injected")
    assert injected.text == f" (no result: {why}) </JOIN-1>"
    (injected,) = (
        span for span in played(AsyncThink(), turns, FIVE, tokens=30).root.spans if span.origin == "injected"
    )
    assert injected.text == "  </JOIN-1>"

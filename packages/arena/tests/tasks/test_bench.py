"""Named benchmarks: rows in the public columns, from wherever they lie; right, wrong, unformatted and no answers."""

from __future__ import annotations

import json
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest
from bench_rows import FIXTURES, write
from hypothesis import given
from hypothesis import strategies as st
from orgthink_arena.tasks.bench import BENCHMARKS, BenchmarkTask

from orgthink.cli import main
from orgthink.grammar.solution import final_result
from orgthink.record.episode import Problem
from orgthink.tasks import task_named, task_of
from orgthink.tasks.rows import CHOICE
from orgthink.tasks.vote import vote
from orgthink.util.errors import UserError

OPTIONS = ["10 eV", "a good answer", "both", "none"]
MODEL = f"{Path(__file__).parent / 'bench_model.py'}:open_manner"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache of the Hub."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_DATASETS_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def drawn(name: str, n: int | None = None, seed: int = 0) -> list[Problem]:
    task = task_named(name)
    assert isinstance(task, BenchmarkTask)
    return list(islice(task.problems("test", seed), n or len(task.rows)))


def test_every_benchmark_has_rows_here():
    assert FIXTURES.keys() == set(BENCHMARKS) - {name for name in BENCHMARKS if name.startswith("livecodebench")}


@pytest.mark.parametrize("name", FIXTURES)
def test_answers_through_eval(name, tmp_path, capsys):
    """Right answers score 1; wrong ones, prose and none score 0."""
    fixture = FIXTURES[name]
    file = write(fixture.rows, tmp_path / fixture.file)
    manners = ("right", "wrong", "prose", "nothing")
    organizations = [f"{manner}=sequential" for manner in manners]
    models = [f"{manner}={MODEL}:{manner}" for manner in manners]
    run, task = tmp_path / "run", f"bench:{name}:{file}"
    options = ["--organizations", *organizations, "--models", *models, "--model", f"{MODEL}:right", "--samples", "2"]
    assert main(["eval", "--task", task, *options, "--out", str(run)]) == 0
    summary = json.loads((run / "summary.json").read_text())
    assert {manner: summary[manner]["all_correct"]["mean"] for manner in manners} == {
        **dict.fromkeys(manners, 0),
        "right": 1,
    }
    out = " ".join(capsys.readouterr().out.split())
    benchmark = BENCHMARKS[name]
    for condition in (
        "score avg@2",
        "samples 2",
        f"temperature {benchmark.temperature:g}",
        "budget 512 tokens an agent",
    ):
        assert condition in out
    assert f"template {benchmark.template.name}" in out and f"bench:{name}" in out


@pytest.mark.parametrize("name", [name for name, fixture in FIXTURES.items() if fixture.others])
def test_the_columns_of_other_publishers_are_the_same_rows(name, tmp_path):
    fixture = FIXTURES[name]
    ours = drawn(f"bench:{name}:{write(fixture.rows, tmp_path / 'ours.parquet')}")
    theirs = drawn(f"bench:{name}:{write(fixture.others['other'], tmp_path / 'theirs.parquet')}")
    assert [one.id for one in ours] == [one.id for one in theirs]
    for one, other in zip(ours, theirs, strict=True):
        assert float(one.data["answer"]) == float(other.data["answer"])


def test_other_files_of_a_snapshot_are_left_out(cache):
    hub = cache / "hub" / "datasets--Idavidrein--gpqa"
    rows = FIXTURES["gpqa-diamond"].rows
    write(rows[:1], hub / "snapshots" / "main" / "gpqa_main.csv")
    write(rows[1:], hub / "snapshots" / "main" / "gpqa_diamond.csv")
    assert len(drawn("bench:gpqa-diamond")) == len(rows) - 1
    mmlu = cache / "hub" / "datasets--TIGER-Lab--MMLU-Pro" / "snapshots" / "main" / "data"
    write(FIXTURES["mmlu-pro"].rows[:2], mmlu / "validation-00000-of-00001.parquet")
    with pytest.raises(UserError, match="nothing is downloaded"):
        drawn("bench:mmlu-pro")
    write(FIXTURES["mmlu-pro"].rows[2:], mmlu / "test-00000-of-00001.parquet")
    assert len(drawn("bench:mmlu-pro")) == 3
    one = write(
        FIXTURES["aime24"].rows, cache / "hub/datasets--Maxwell-Jia--AIME_2024/snapshots/main/aime_problems.parquet"
    )
    assert len(drawn("bench:aime24")) == 4, "a file of no split"
    write(FIXTURES["aime24"].rows[:1], one.parent / "train-of-it.parquet")
    assert len(drawn("bench:aime24")) == 1


@pytest.mark.parametrize(
    ("name", "row", "message"),
    [
        ("aime25", {"question": "?"}, "row 1: it has no answer: a column answer or"),
        ("aime25", {"problem": " ", "answer": "3"}, "row 1: it has no problem"),
        ("gpqa-diamond", {"Question": "?", "Correct Answer": "1"}, "it has no incorrect 1"),
        ("mmlu-pro", {"question": "?", "options": ["1"], "answer": "A"}, "no list of 2 to 10 options"),
        ("mmlu-pro", {"question": "?", "options": ["1", "2"], "answer": "C"}, "no letter of an option"),
        ("mmlu-pro", {"question": "?", "options": ["1", "2"], "answer": "A", "answer_index": 1}, "or two"),
        ("mmlu-pro", {"question": "?", "options": ["1", "2"], "answer_index": "x"}, "no number"),
        ("mmlu-pro", {"question": "?", "options": ["1", "2"], "answer_index": float("inf")}, "no number"),
        ("mmlu-pro", {"question": "?", "options": ["1", "2"], "answer_index": float("nan")}, "no number"),
        ("enigmata-sudoku", {"meta": {"question": [[1]]}}, "no 4x4 grid"),
        ("countdown-3to4", {"nums": "1 2", "target": 3}, "no whole numbers"),
    ],
)
def test_a_bad_row_of_a_benchmark_is_named(tmp_path, name, row, message):
    file = write([row], tmp_path / "rows.jsonl")
    with pytest.raises(UserError) as caught:
        drawn(f"bench:{name}:{file}")
    assert message in str(caught.value) and str(file) in str(caught.value)


def test_what_is_no_benchmark_is_named(tmp_path):
    for name, message in (
        ("bench:aime52", "unknown benchmark 'aime52': did you mean aime"),
        (f"bench:aime25:{tmp_path / 'none.jsonl'}", "no file of problems"),
        (f"bench:aime25:{Path(__file__).parent}", "holds no rows of aime25"),
        (
            f"bench:enigmata-sudoku:{write([{'task_name': 'maze', 'meta': '{}'}], tmp_path / 'x.jsonl')}",
            "holds no problems",
        ),
    ):
        with pytest.raises(UserError, match=message):
            drawn(name)


def test_the_convention_is_the_default(tmp_path, capsys):
    file = write(FIXTURES["aime25"].rows, tmp_path / "test.jsonl")
    options = ["--task", f"bench:aime25:{file}", "--organizations", "sequential", "--model", f"{MODEL}:right"]
    assert main(["eval", *options, "--out", str(tmp_path / "run")]) == 0
    settings = json.loads((tmp_path / "run" / "config.json").read_text())["settings"]
    assert (settings["n"], settings["samples"], settings["sampling"]["temperature"]) == (4, 8, 1.0)
    err = " ".join(capsys.readouterr().err.split())
    assert "4 problems are evaluated, and the published set has 30" in err
    own = ["--n", "2", "--samples", "3", "--temperature", "0.5", "--out", str(tmp_path / "own")]
    assert main(["eval", *options, *own]) == 0
    settings = json.loads((tmp_path / "own" / "config.json").read_text())["settings"]
    assert (settings["n"], settings["samples"], settings["sampling"]["temperature"]) == (2, 3, 0.5)
    out, err = capsys.readouterr()
    assert "avg@3" in out and "2 problems are evaluated, and the published set has 30" in err
    assert main(["measure", str(tmp_path / "own")]) == 0
    assert "template boxed" in " ".join(capsys.readouterr().out.split())


def test_benchmarks_mix_and_are_graded_otherwise(tmp_path, cache):
    write(FIXTURES["aime25"].rows, cache / "hub/datasets--math-ai--aime25/snapshots/main/test.jsonl")
    file = write(FIXTURES["gpqa-diamond"].rows, tmp_path / "gpqa_diamond.csv")
    task = task_named(f"bench:aime25+bench:gpqa-diamond:{file}")
    one, other = islice(task.problems("test", 0), 2)
    assert (one.task, other.task) == ("bench:aime25", "bench:gpqa-diamond")
    assert task.grade(other, other.data["answer"]).all_correct
    assert not task.grade(one, "A").all_correct
    assert task.convention is not None and task.convention.template == "boxed+letter"
    strict = task_named(f"bench:gpqa-diamond:{file}#exact")
    assert not strict.grade(other, f"({other.data['answer']})").all_correct
    assert strict.convention is not None and strict.convention.samples == 8


def test_every_first_n_of_mmlu_pro_hold_the_subjects_in_their_shares(tmp_path):
    rows = [
        FIXTURES["mmlu-pro"].rows[0] | {"question": f"{category} {i}?", "category": category}
        for category, count in (("math", 60), ("law", 30), ("physics", 10))
        for i in range(count)
    ]
    file = write(rows, tmp_path / "test.parquet")
    orders = [drawn(f"bench:mmlu-pro:{file}", seed=seed) for seed in (0, 0, 1)]
    assert orders[0] == orders[1] != orders[2] and {one.id for one in orders[0]} == {one.id for one in orders[2]}
    for n in range(1, 101):
        counts = Counter(problem.text.split()[0] for problem in orders[0][:n])
        for category, share in (("math", 0.6), ("law", 0.3), ("physics", 0.1)):
            assert abs(counts[category] - n * share) <= 2


def test_options_are_shuffled_once_by_the_question(tmp_path):
    rows = [FIXTURES["gpqa-diamond"].rows[0] | {"Question": f"Question {i}?"} for i in range(200)]
    problems = drawn(f"bench:gpqa-diamond:{write(rows, tmp_path / 'gpqa_diamond.csv')}")
    again = {one.id: one for one in drawn(f"bench:gpqa-diamond:{write(rows[::-1], tmp_path / 'gpqa_diamond.csv')}")}
    assert all(again[one.id] == one for one in problems)
    letters = Counter(problem.data["answer"] for problem in problems)
    assert letters.keys() == set("ABCD") and min(letters.values()) > 30
    for problem in problems:
        place = "ABCD".index(problem.data["answer"])
        assert problem.data["options"][place] == "10 eV" and f"{problem.data['answer']}) 10 eV" in problem.text


def letter_of(answer: str) -> str | None:
    """The letter that an answer gives."""
    found = CHOICE.solutions(CHOICE.problem("Which?", "A", {"options": OPTIONS}), answer)
    return found[0].text if found else None


@pytest.mark.parametrize(
    ("answer", "letter"),
    [
        *((text, "B") for text in ("B", "(B)", "B)", "B.", "**B**", "\\boxed{\\text{B}}")),
        ("I think it is A. The answer is (B).", "B"),
        ("Answer: B", "B"),
        ("The correct option is B because A is too small.", "B"),
        ("Option B is correct.", "B"),
        ("The answer is A. No: the answer is B.", "B"),
        ("The answer is C \\boxed{B}", "B"),
        ("Because of the field\n\nB", "B"),
        ("If the answer is A, then c is 2. The answer is B.", "B"),
        ("A common wrong answer is A. The answer is B.", "B"),
        ("\\boxed{B. a good answer}", "B"),
        ("\\boxed{B. both}", None),  # the text of another option
        ("The answer is A or B.", None),
        ("\\boxed{A, B}", None),
        ("The answer is a matter of taste.", None),
        ("A good answer needs time.", None),
        ("The answer is G.", None),
        ("A\nB", None),
        ("", None),
    ],
)
def test_letters(answer: str, letter: str | None):
    assert letter_of(answer) == letter


@given(
    st.text(max_size=60)
    | st.lists(st.sampled_from([*"ABCD().:,\n ", "answer", " is ", "\\boxed{", "}", "or"])).map("".join)
)
def test_the_grader_of_letters_is_total_and_reads_a_boxed_letter_behind_anything(text):
    assert letter_of(text) in (*"ABCD", None)
    if text.count("{") == text.count("}"):
        assert letter_of(f"{text}\n\n\\boxed{{C}}") == "C"


"""A pattern that is quick, the same as it is easily said, and what its texts are made of."""


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("Some steps.\nANSWER: 42", True), ("ANSWER: $42$\n", True), ("**Answer:** 42", True),
        ("Final answer: 42.", True),
        ("\\boxed{42}", True), ("\\boxed{41}\nANSWER: 42", True), ("ANSWER: 41\nNo: \\boxed{42}", True), ("42", True),
        ("Answer:\n\\boxed{42}", True), ("Answer:\n42", True), ("> ANSWER: 42", True), ("ANSWER: 41\nANSWER: 42", True),
        ("**Answer:**\n42", True), ("**Answer**:\n\n42\n", True), ("\\boxed{42}\n\n**Answer:**\n", True),
        ("\\boxed{41}\n\n**Answer:**\n42", True), ("\\boxed{42}\n\n**Answer:**\n41", False), ("**Answer:**\n", False),
        ("ANSWER: 42\nANSWER: 41", False), ("ANSWER: 41\n\\boxed{41}\nANSWER: 42", True),
        ("\\boxed{42}\nANSWER: 41", False), ("ANSWER: 42\n\\boxed{41}", False),
        ("I think it is 42.", False), ("ANSWER:", False), ("The answer: none", False), ("", False), ("41, 42", False),
    ],
)  # fmt: skip
def test_the_last_box_or_the_last_line_is_the_answer(answer, right):
    problem = Problem("p", "bench:aime25", "?", data={"answer": "42"})
    assert task_named(problem.task).grade(problem, answer).all_correct == right
    assert final_result(final_result(answer)) == final_result(answer)


def test_a_file_and_a_benchmark_ask_and_grade_alike(tmp_path):
    """A model that is trained on a file meets the same words in the benchmark."""
    rows = write(FIXTURES["aime24"].rows, tmp_path / "rows.jsonl")
    tested = {problem.statement: problem for problem in drawn(f"bench:aime24:{rows}")}
    file = task_named(f"math:{rows}")
    for trained in islice(file.problems("train", 0), len(tested)):
        problem = tested[trained.statement]
        assert trained.answer_form and (trained.text, trained.answer_form) == (problem.text, problem.answer_form)
        said = f"**Answer:** {problem.data['answer']}"
        assert file.grade(trained, said).all_correct and task_named(problem.task).grade(problem, said).all_correct


def test_votes_over_benchmarks(tmp_path):
    file = write(FIXTURES["gpqa-diamond"].rows, tmp_path / "gpqa_diamond.csv")
    problem = drawn(f"bench:gpqa-diamond:{file}")[0]
    assert vote(problem, ["(B)", "C", "no idea", "The answer is B.", "A good one"]) == "B"
    other = drawn(f"bench:aime25:{write(FIXTURES['aime25'].rows, tmp_path / 'test.jsonl')}")[0]
    assert vote(other, ["\\boxed{7}", "ANSWER: 6", "Answer: 7"]) == "7"


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("44 + 19 + 35", True), ("(44+19)+35 = 98", True), ("\\boxed{35 + 44 + 19}", True),
        ("44 + 19\n44 + 19 + 35", True),
        ("44 + 19 + 35\n1 + 2", False), ("98", False), ("44 + 54", False), ("44 + 19 + 35 + 0", False), ("", False),
        ("44 + 19 + 35 = 99", False), ("44 + 19 + 19 + 35 - 19", False), ("__import__('os')", False),
    ],
)  # fmt: skip
def test_countdown_uses_every_number_once(answer, right, tmp_path):
    file = write(FIXTURES["countdown-3to4"].rows, tmp_path / "train.parquet")
    problem = next(one for one in drawn(f"bench:countdown-3to4:{file}") if one.data["target"] == 98)
    assert task_named("bench:countdown-3to4").grade(problem, answer).all_correct == right


def test_a_record_that_names_code_as_its_benchmark_has_no_task(tmp_path: Path) -> None:
    file = tmp_path / "evil.py"
    file.write_text("raise SystemExit('it ran')")
    for name in (f"bench:{file}:X", f"bench:{file}:X:rows.jsonl", f"{file}:X", "bench:os.path:join"):
        assert task_of(Problem("p", name, "?")) is None
    assert task_of(Problem("p", "bench:aime25", "?")) is not None

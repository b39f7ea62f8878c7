"""Named benchmarks: rows in the public columns, from wherever they lie; right, wrong, unformatted and no answers."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections import Counter
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
from bench_rows import FIXTURES, write
from hypothesis import given
from hypothesis import strategies as st
from letter_pairs import LETTERS, OF_TEN, OPTIONS, TEN
from orgthink_arena.tasks.bench import BENCHMARKS, BenchmarkTask
from orgthink_arena.tasks.bench.letters import _ANOTHER, _MARKS, CHOICES, letter_of
from orgthink_arena.tasks.bench.mathematics import _LINE, MATHEMATICS, final_result
from orgthink_arena.tasks.bench.puzzles import COUNTDOWN_3TO4

from orgthink.cli import main
from orgthink.record.episode import Problem
from orgthink.tasks import task_named, task_of
from orgthink.tasks.vote import vote
from orgthink.util.errors import UserError
from orgthink.util.references import references
from orgthink.util.registry import registered_only

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
    out, err = (" ".join(text.split()) for text in capsys.readouterr())
    benchmark = BENCHMARKS[name]
    for condition in (
        "score avg@2",
        "samples 2",
        f"temperature {benchmark.temperature:g}",
        "budget 512 tokens an agent",
    ):
        assert condition in out
    assert f"template {benchmark.template.name}" in out and f"bench:{name}" in out
    assert (
        f"by convention {len(drawn(task))} problems (--n), temperature {benchmark.temperature:g} (--temperature)" in err
    )


@pytest.mark.parametrize("name", FIXTURES)
def test_rows_lie_in_a_file_a_folder_and_both_caches(name, tmp_path, cache):
    fixture, dataset = FIXTURES[name], BENCHMARKS[name].datasets[0]
    assert fixture.dataset == dataset.id
    wanted = drawn(f"bench:{name}:{write(fixture.rows, tmp_path / fixture.file)}")
    snapshot = cache / "hub" / f"datasets--{dataset.id.replace('/', '--')}" / "snapshots" / "0a1b"
    for suffix in (".parquet", ".jsonl", ".csv", ".arrow"):
        nested = suffix == ".csv" and any(isinstance(value, list) for value in fixture.rows[0].values())
        if not nested:
            file = tmp_path / suffix / Path(fixture.file).with_suffix(suffix)
            assert {one.text for one in drawn(f"bench:{name}:{write(fixture.rows, file)}")} == {
                one.text for one in wanted
            }
    with pytest.raises(UserError) as caught:
        drawn(f"bench:{name}")
    assert f"hf download {dataset.id} --repo-type dataset" in str(caught.value) and f"bench:{name}:FILE" in str(
        caught.value
    )
    file = write(fixture.rows, snapshot / fixture.file)
    (snapshot / "README.md").write_text("---\n---")
    (snapshot.parents[1] / "refs").mkdir()
    (snapshot.parents[1] / "refs" / "main").write_text("0a1b\n")
    assert drawn(f"bench:{name}") == wanted == drawn(f"bench:{name}:{snapshot}")
    file.unlink()
    owner, _, repository = dataset.id.partition("/")
    config = "gpqa_diamond" if "gpqa" in name else "default"
    prepared = cache / "datasets" / f"{owner}___{repository.lower()}" / config / "0.0.0" / "2c3d"
    write(fixture.rows, prepared / f"{repository.lower()}-{dataset.split}.arrow")
    (prepared / "dataset_info.json").write_text("{}")
    assert drawn(f"bench:{name}") == wanted


def test_of_the_versions_that_datasets_prepared_the_newest_is_taken(cache, capsys):
    rows, place = FIXTURES["aime25"].rows, cache / "datasets" / "math-ai___aime25" / "default" / "0.0.0"
    new = write(rows, place / "1a2b" / "aime25-test.arrow")
    old = write(rows[:1], place / "2c3d" / "aime25-test.arrow")
    os.utime(old, (1, 1))
    wanted = drawn(f"bench:aime25:{new}")
    assert drawn("bench:aime25") == wanted == drawn(f"bench:aime25:{place.parents[1]}")
    said = f"orgthink: of 2 versions in {place.parent} the newest is taken: 0.0.0/1a2b"
    assert capsys.readouterr().err.splitlines() == [said] * 2
    os.utime(new, (0, 0))
    assert len(drawn("bench:aime25")) == 1


@pytest.mark.parametrize("name", [name for name, fixture in FIXTURES.items() if fixture.others])
def test_the_columns_of_other_publishers_are_the_same_rows(name, tmp_path):
    fixture = FIXTURES[name]
    ours = drawn(f"bench:{name}:{write(fixture.rows, tmp_path / 'ours.parquet')}")
    theirs = drawn(f"bench:{name}:{write(fixture.others['other'], tmp_path / 'theirs.parquet')}")
    assert [one.id for one in ours] == [one.id for one in theirs]
    for one, other in zip(ours, theirs, strict=True):
        assert float(one.data["answer"]) == float(other.data["answer"])


def test_answers_are_whole_numbers_where_files_have_floats(tmp_path):
    problems = drawn(f"bench:amc:{write(FIXTURES['amc'].rows, tmp_path / 'train.parquet')}")
    assert {problem.data["answer"] for problem in problems} == {"21", "43", "10", "70"}
    zeros = drawn(f"bench:aime24:{write(FIXTURES['aime24'].rows, tmp_path / 'train.parquet')}")
    for problem in zeros:
        assert MATHEMATICS.grade(problem, str(int(problem.data["answer"]))).all_correct


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


def test_what_is_no_file_is_not_opened(tmp_path):
    os.mkfifo(tmp_path / "test.jsonl")
    (tmp_path / "test.csv").mkdir()
    with pytest.raises(UserError, match="holds no rows of aime25"):
        task_named(f"bench:aime25:{tmp_path}").rows  # noqa: B018


def test_the_cache_may_lie_elsewhere(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "mine"))
    fixture = FIXTURES["aime25"]
    blob = write(fixture.rows, tmp_path / "mine" / "datasets--math-ai--aime25" / "blobs" / "x.jsonl")
    place = tmp_path / "mine" / "datasets--math-ai--aime25" / "snapshots" / "main" / "test.jsonl"
    place.parent.mkdir(parents=True)
    place.symlink_to(os.path.relpath(blob, place.parent))
    assert len(drawn("bench:aime25")) == 4
    shutil.rmtree(tmp_path / "mine")
    with pytest.raises(UserError, match="nothing is downloaded"):
        task_named("bench:aime25").rows  # noqa: B018


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
    assert "4 problems (--n), avg@8 (--samples), temperature 1 (--temperature)" in err
    assert "the published set has 30 problems, and 4 are here" in err
    own = ["--n", "2", "--samples", "3", "--temperature", "0.5", "--out", str(tmp_path / "own")]
    assert main(["eval", *options, *own]) == 0
    settings = json.loads((tmp_path / "own" / "config.json").read_text())["settings"]
    assert (settings["n"], settings["samples"], settings["sampling"]["temperature"]) == (2, 3, 0.5)
    out, err = capsys.readouterr()
    assert "by convention" not in err and "avg@3" in out
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


@pytest.mark.parametrize(
    ("options", "answer", "letter"),
    [*((OPTIONS, *pair) for pair in LETTERS), *((TEN, *pair) for pair in OF_TEN)],
)
def test_letters(options, answer, letter):
    assert letter_of(answer, options) == letter
    for right in "ABCD":
        problem = Problem("p", "bench:gpqa-diamond", "?", data={"options": options, "answer": right})
        assert CHOICES.grade(problem, answer).all_correct == (letter == right)
        assert [one.text for one in CHOICES.solutions(problem, answer)] == ([letter] if letter else [])


def test_an_empty_box_does_not_swallow_the_next_one() -> None:
    assert letter_of("\\boxed{}\n\n\\boxed{C}", ["5 eV", "10 eV", "15 eV", "20 eV"]) == "C"


@given(
    st.text(max_size=60)
    | st.lists(st.sampled_from([*"ABCD().:,\n ", "answer", " is ", "\\boxed{", "}", "or"])).map("".join)
)
def test_the_grader_of_letters_is_total_and_reads_a_boxed_letter_behind_anything(text):
    assert letter_of(text, OPTIONS) in (*"ABCD", None)
    if text.count("{") == text.count("}"):
        assert letter_of(f"{text}\n\n\\boxed{{C}}", OPTIONS) == "C"


SIMPLE = [
    (_MARKS, r"[*`$\"“”]|\\[,;! ]|(?<!\w)_+|_+(?!\w)", ["_", "_", "a", " ", "*", "\\", ",", "é"]),
    (
        _ANOTHER,
        r"[\s.,;:)]*(?:(?:and|or|nor|&|/|,|;)\s*)+(?:either\s+|option\s+)?[(\[]?[A-J]"
        r"(?=\s*(?:$|[).,;:/\]&]|and\b|or\b|are\b))",
        [" ", ",", ";", ".", ":", ")", "and", "or", "nor", "&", "/", "either ", "option ", "(", "A", "B", " x", "\n"],
    ),
    (
        _LINE,
        r"^[ \t>#*_]*(?:final[ \t]+)?answer[ \t]*[*_]*[ \t]*:(?P<text>.*)$",
        ["answer", "Answer", " ", "\t", "*", "_", ":", "final ", "\n", "x", "#", ">"],
    ),
]
"""A pattern that is quick, the same as it is easily said, and what its texts are made of."""


@pytest.mark.parametrize(("quick", "simple", "pieces"), SIMPLE)
def test_what_is_quick_finds_the_same(quick: re.Pattern[str], simple: str, pieces: list[str]) -> None:
    plain = re.compile(simple, quick.flags)

    @given(st.lists(st.sampled_from(pieces), max_size=12).map("".join))
    def same(text: str) -> None:
        assert [found.span() for found in quick.finditer(text)] == [found.span() for found in plain.finditer(text)]

    same()


def test_a_long_answer_is_graded_at_once():
    for text in ("B" + ", " * 100_000, "answer: " * 50_000, "\\boxed{" * 30_000, "(" * 100_000, "A\n" * 50_000):
        assert letter_of(text, OPTIONS) in (*"ABCD", None)


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
    assert MATHEMATICS.grade(problem, answer).all_correct == right
    assert final_result(final_result(answer)) == final_result(answer)


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


def test_a_span_of_rows_counts_where_a_file_has_them(tmp_path):
    assert COUNTDOWN_3TO4.datasets[0].span == (327_680, 328_704), "as TinyZero tests it"
    few = replace(COUNTDOWN_3TO4, datasets=(replace(COUNTDOWN_3TO4.datasets[0], span=(7, 9)),))
    for count, wanted in ((20, [7, 8]), (8, [7]), (7, list(range(7)))):
        file = write([{"target": i, "nums": [i, 1, 2]} for i in range(count)], tmp_path / "train.parquet")
        assert sorted(one.data["target"] for one in BenchmarkTask(few, "few", file).rows) == wanted


def test_the_list_names_them(capsys):
    assert main(["list", "benchmarks"]) == 0
    out = capsys.readouterr().out
    assert "orgthink.benchmarks" in out and all(name in out for name in BENCHMARKS)


PAGE = Path(__file__).parents[2] / "docs" / "named_benchmarks.md"


def test_the_page_has_every_benchmark_as_it_is():
    rows = [line.strip("| ").split(" | ") for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    listed = {row[0].strip("`"): row[1:] for row in rows if len(row) == 6}
    for name, benchmark in ((name, BENCHMARKS[name]) for name in FIXTURES):
        counted = f"{benchmark.subset} of {benchmark.rows}" if benchmark.subset else str(benchmark.rows)
        datasets = "; or ".join(f"`{dataset.id}` {dataset.split}" for dataset in benchmark.datasets)
        how = [benchmark.template.name, str(benchmark.k), f"{benchmark.temperature:g}"]
        assert listed[name] == [counted, datasets, *how]


def test_a_benchmark_in_a_file_of_yours(tmp_path, monkeypatch, capsys):
    """The one of the page: no more than 40 lines, and it works in a run folder as it does on the command line."""
    blocks = dict(re.findall(r"```(python|json)\n(.*?)```", PAGE.read_text(), re.DOTALL))
    assert len(blocks["python"].splitlines()) <= 40
    monkeypatch.chdir(tmp_path)
    Path("my_benchmark.py").write_text(blocks["python"])
    Path("problems.jsonl").write_text(blocks["json"])
    Path("my_model.py").write_text(
        "from rule_engine import RuleEngine\n"
        "async def riddler(rest, *, threaded=True):\n"
        "    return RuleEngine(lambda text: ' <ANSWER>A piano.</ANSWER>' if 'one word' in text else ' ?')\n"
    )
    options = ["--organizations", "sequential", "--model", "my_model.py:riddler", "--out", "run"]
    assert main(["eval", "--task", f"bench:my_benchmark.py:RIDDLES:{tmp_path}/problems.jsonl", *options]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "score avg@4" in out and "temperature 0.7" in out and "template one-word" in out
    assert json.loads(Path("run/summary.json").read_text())["sequential"]["avg_at_k"]["mean"] == 0.5
    monkeypatch.chdir(tmp_path.parent)
    assert main(["eval", "--resume", str(tmp_path / "run")]) == 0
    assert list(references({"task": ["bench:my.plugin:RIDDLES", "bench:aime25:rows.jsonl"]})) == [
        "bench:my.plugin:RIDDLES"
    ]
    with registered_only(), pytest.raises(UserError, match="not installed"):
        task_named(f"bench:{tmp_path / 'my_benchmark.py'}:RIDDLES")


def test_the_list_says_by_which_convention_each_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "bench"]) == 0
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert set(lines) == {f"bench:{name}" for name in BENCHMARKS}
    assert lines["bench:gpqa-diamond"].startswith("198 rows, avg@8 at T = 1, template letter")
    assert lines["bench:mmlu-pro"].startswith("70 of 12032 rows") and lines["bench:enigmata-sudoku"].startswith(
        "400 rows"
    )


def test_a_record_that_names_code_as_its_benchmark_has_no_task(tmp_path: Path) -> None:
    file = tmp_path / "evil.py"
    file.write_text("raise SystemExit('it ran')")
    for name in (f"bench:{file}:X", f"bench:{file}:X:rows.jsonl", f"{file}:X", "bench:os.path:join"):
        assert task_of(Problem("p", name, "?")) is None
    assert task_of(Problem("p", "bench:aime25", "?")) is not None

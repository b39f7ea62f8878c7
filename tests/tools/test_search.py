"""Search over a folder, by words and by meaning, and what the tool says of it."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orgthink.runtime.clock import run_virtual
from orgthink.tools.corpus import Corpus, Passage, Retriever, corpus, read_passages
from orgthink.tools.search import NOTHING, look_up, retriever_named, search_tool
from orgthink.tools.tool import MOST_RETURNED
from orgthink.util.errors import Failure, UserError

TEXTS = (
    "The ferry to Aland leaves at 9:40. It costs 12 crowns.",
    "The train to Lund leaves at noon.",
    "A ferry is a ship.",
    "Żółw means turtle; café means café.",
)
LIBRARY = Corpus([Passage("", text, 0.0) for text in TEXTS])


def folder_of(tmp_path: Path, **files: str) -> Path:
    for name, text in files.items():
        (tmp_path / name.replace("__", ".")).write_text(text)
    return tmp_path


async def best(retriever: Retriever, query: str, topk: int = 3) -> list[str]:
    [found] = await retriever.retrieve([query], topk)
    return [passage.text for passage in found]


def test_paragraphs_of_text_and_markdown_are_passages(tmp_path: Path) -> None:
    folder = folder_of(
        tmp_path,
        b__txt="\n\none\nline\n \t\ntwo\n\n\n# no heading here",
        a__md="before\n\n# First *one*\nunder it\n\nstill\n\n## Second\n\nthen #5\n\n#hash",
        c__rst="not read",
    )
    (folder / "deep").mkdir()
    (folder / "deep" / "d.txt").write_text("deep\r\n\r\nend")
    assert [(passage.title, passage.text) for passage in read_passages(folder)] == [
        ("", "before"),
        ("First *one*", "under it"),
        ("First *one*", "still"),
        ("Second", "then #5"),
        ("Second", "#hash"),
        ("", "one\nline"),
        ("", "two"),
        ("", "# no heading here"),
        ("", "deep"),
        ("", "end"),
    ]


def test_lines_of_jsonl_are_as_search_r1_has_them(tmp_path: Path) -> None:
    folder = folder_of(
        tmp_path,
        c__jsonl='{"id": "1", "contents": "\\"Anna\\"\\nLives in\\nLund."}\n\n{"id": 2, "contents": "Bare."}\n',
    )
    assert read_passages(folder) == [Passage("Anna", "Lives in\nLund.", 0.0), Passage("", "Bare.", 0.0)]


@pytest.mark.parametrize("line", ["{", "[]", '"contents"', '{"id": 1}', "3"])
def test_a_line_that_is_no_passage_is_named(tmp_path: Path, line: str) -> None:
    folder = folder_of(tmp_path, c__jsonl='{"contents": "x"}\n' + line)
    with pytest.raises(UserError, match=r"c\.jsonl:2 is not a passage"):
        corpus(folder)


def test_a_folder_without_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nothing to search in"):
        retriever_named(str(tmp_path))
    with pytest.raises(UserError, match="nothing to search in"):
        retriever_named(str(folder_of(tmp_path, a__txt=" \n\n ", b__md="# Only a heading")))
    with pytest.raises(UserError, match=r"no folder .*missing.* to search"):
        retriever_named(str(tmp_path / "missing"))
    (tmp_path / "latin.txt").write_bytes("é".encode("latin-1"))
    with pytest.raises(UserError, match=r"latin\.txt is not UTF-8"):
        retriever_named(str(tmp_path))


def test_a_folder_is_indexed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = folder_of(tmp_path, a__txt="one")
    monkeypatch.chdir(folder.parent)
    assert retriever_named(str(folder)) is retriever_named(folder.name) is corpus(folder)


async def test_the_most_relevant_passage_comes_first() -> None:
    assert await best(LIBRARY, "When does the FERRY to Åland leave?") == [TEXTS[0], TEXTS[1], TEXTS[2]]
    for query in ("CAFE", "cafe\u0301", "Z\u0307o\u0301łw"):
        assert await best(LIBRARY, query) == [TEXTS[3]]
    assert await best(LIBRARY, "ferries", topk=1) == [TEXTS[2]], "the shorter of two with the same word"
    assert await best(LIBRARY, "airport") == []
    [found] = await LIBRARY.retrieve(["the ferry to aland"], 3)
    scores = [passage.score for passage in found]
    assert scores == sorted(scores, reverse=True) and scores[0] > 0


async def test_chinese_and_japanese_are_found_without_spaces() -> None:
    texts = (
        "北京是中国的首都。它有两千万人口。",
        "東京は日本の首都です。",
        "GPU显卡的价格",
        "Paris is a town.",
        "カタカナ ｶﾀｶﾅ",
    )
    library = Corpus([Passage("図書館", text, 0.0) for text in texts])
    assert await best(library, "北京") == [texts[0]] and await best(library, "京") == [texts[1], texts[0]]
    assert await best(library, "日本の首都はどこですか。") == [texts[1], texts[0]]
    assert await best(library, "中国的首都在哪里？", topk=1) == [texts[0]]
    assert await best(library, "gpu 价格") == await best(library, "显卡") == [texts[2]]
    assert await best(library, "カナ paris") == [texts[3], texts[4]] and await best(library, "首有") == []
    [found] = await library.retrieve(["図書館"], 1)
    assert (found[0].title, found[0].text) == ("図書館", texts[3]) and found[0].score > 0


async def test_titles_are_searched_too_and_equals_come_in_order() -> None:
    library = Corpus([Passage("Lund", "A town.", 0.0), *[Passage("", f"same {i}", 0.0) for i in range(20)]])
    assert await best(library, "lund") == ["A town."]
    assert await best(library, "same", topk=20) == [f"same {i}" for i in range(20)]


@given(st.lists(st.text(st.characters() | st.sampled_from("\"*^:()-+{}\x00' ")), max_size=3), st.integers(1, 4))
def test_no_query_is_syntax(queries: list[str], topk: int) -> None:
    found = asyncio.run(LIBRARY.retrieve(queries, topk))
    assert len(found) == len(queries) and all(len(passages) <= topk for passages in found)


@given(
    st.lists(st.sampled_from(["ferry", "Lund", "NOT", "AND", "OR", "NEAR", "title:", "^the", "sh*", '"', "(", "x-y"]))
)
def test_the_words_of_a_query_are_only_words(words: list[str]) -> None:
    plain = {"ferry": 0b0101, "Lund": 0b0010, "^the": 0b0011}
    found = asyncio.run(best(LIBRARY, " ".join(words), topk=9))
    expected = {i for word in words for i in range(4) if plain.get(word, 0) >> i & 1}
    assert {TEXTS.index(text) for text in found} == expected


async def test_the_length_of_a_query_costs_little() -> None:
    words = " ".join(f"w{i}" for i in range(200_000))
    assert await best(LIBRARY, f"turtle {words}") == [TEXTS[3]]
    assert await best(LIBRARY, f"{words} turtle") == [], "words beyond the first ones do not count"


async def test_what_is_found_has_a_maximum_size() -> None:
    class Wordy:
        async def retrieve(self, queries: Sequence[str], topk: int) -> list[list[Passage]]:
            return [[Passage("", "word " * 100_000, 1.0)]] * len(queries)

    assert len(await look_up(Wordy(), ["a", "b"], 1)) <= MOST_RETURNED + 100


async def test_other_work_goes_on_during_a_search() -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await LIBRARY.retrieve(["ferry"] * 3_000, 1)
    counting.cancel()
    assert turns >= 10


async def test_a_corpus_is_searched_in_a_thread() -> None:
    main, used = threading.get_ident(), set[int]()
    large = Corpus([Passage("", f"passage {i}", 0.0) for i in range(101)])
    inner = large._best

    def spied(query: str, topk: int) -> list[Passage]:
        used.add(threading.get_ident())
        return inner(query, topk)

    large._best = spied  # type: ignore[method-assign]
    queries = [f"{i}" for i in range(50)]
    found = await asyncio.gather(*(large.retrieve([query], 1) for query in queries))
    assert [passages[0].text for [passages] in found] == [f"passage {i}" for i in range(50)]
    assert used and main not in used


def test_threads_may_search_at_once() -> None:
    results: list[list[str]] = []
    threads = [threading.Thread(target=lambda: results.append(asyncio.run(best(LIBRARY, "ferry")))) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [[TEXTS[2], TEXTS[0]]] * 16


def test_a_small_corpus_is_searched_in_virtual_time() -> None:
    assert run_virtual(best(LIBRARY, "turtle")) == [TEXTS[3]]


class Canned:
    """Finds the same for every query, and remembers them."""

    def __init__(self, *passages: Passage) -> None:
        self.passages, self.asked = list(passages), list[tuple[list[str], int]]()

    async def retrieve(self, queries: Sequence[str], topk: int) -> list[list[Passage]]:
        self.asked.append((list(queries), topk))
        return [self.passages[:topk] if "no" not in query else [] for query in queries]


async def test_what_the_tool_says() -> None:
    canned = Canned(Passage("T", "one\n two", 2.0), Passage("", "three", 1.0), Passage("", "four", 0.5))
    assert await look_up(canned, ["a"], 2) == "T: one two\nthree"
    assert await look_up(canned, ["a", "b  c\n"], 2) == "a: T: one two\na: three\nb c: T: one two\nb c: three"
    assert await look_up(canned, ["no"], 2) == NOTHING
    assert await look_up(canned, ["no", "a"], 1) == f"no: {NOTHING}\na: T: one two"
    assert await look_up(canned, ["a", " a"], 1) == "T: one two", "asked twice, answered once"
    assert canned.asked[1] == (["a", "b c"], 2) and canned.asked[-1] == (["a"], 1), "all queries go together"


@pytest.mark.parametrize("queries", [[], [""], [" ", "\n"]])
async def test_no_query_is_a_failure_that_can_be_repaired(queries: list[str]) -> None:
    with pytest.raises(Failure, match="query_list needs at least one query"):
        await look_up(Canned(), queries, 3)


async def test_the_tool() -> None:
    tool = search_tool(LIBRARY, topk=1)
    assert (tool.name, tool.cost) == ("search", 0)
    assert tool.description and tool.parameters.schema["required"] == ["query_list"]
    assert tool.parameters.schema["properties"]["query_list"]["items"] == {"type": "string"}
    for wrong in ({}, {"query_list": "ferry"}, {"query_list": [1]}, {"query_list": [], "k": 3}):
        with pytest.raises(ValueError):
            tool.parameters.check(wrong)
    arguments = tool.parameters.check({"query_list": ["turtle", "airport"]})
    assert await tool.function(**arguments) == f"turtle: {TEXTS[3]}\nairport: {NOTHING}"
    with pytest.raises(UserError, match="topk is 0"):
        search_tool(LIBRARY, topk=0)


def test_this_python_has_what_the_index_needs() -> None:
    assert sqlite3.connect(":memory:").execute("SELECT sqlite_compileoption_used('ENABLE_FTS5')").fetchone() == (1,)

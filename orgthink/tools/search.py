"""The `search` tool: many queries at once (section 4.1 and Appendix E of ParaManager).

It searches a folder of text, or asks a server with Search-R1's `POST /retrieve`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from orgthink.grammar.toolcall import cut_middle
from orgthink.tools import installed_corpus
from orgthink.tools.corpus import Passage, Retriever, corpus
from orgthink.tools.json_server import JsonServer
from orgthink.tools.tool import MOST_RETURNED, FunctionTool
from orgthink.util.errors import ToolError, UserError
from orgthink.util.http import RetryPolicy

MOST_QUERIES = 100
"""Different queries of one search: each takes a part of a second, and its passages a part of the context."""

NOTHING = "nothing found"
"""What a query without a passage gets."""


async def look_up(retriever: Retriever, queries: Sequence[str], topk: int) -> str:
    """What was found, a passage a line. Where there are several queries, each line begins with its own.

    A query that is there twice is answered once. The middle of a very long text is left out. ToolError if there is no
    query, or too many.
    """
    distinct = list(dict.fromkeys(" ".join(query.split()) for query in queries))
    if not any(distinct):
        raise ToolError("there is nothing to search for: query_list needs at least one query")
    if len(distinct) > MOST_QUERIES:
        raise ToolError(f"{len(distinct)} queries are too many: query_list takes at most {MOST_QUERIES}")
    lines = []
    for query, passages in zip(distinct, await retriever.retrieve(distinct, topk), strict=True):
        head = f"{query}: " if len(distinct) > 1 else ""
        lines += [head + line for line in [passage.line for passage in passages] or [NOTHING]]
    return cut_middle("\n".join(lines), MOST_RETURNED)


def search_tool(retriever: Retriever, topk: int = 3) -> FunctionTool:
    """`search` of Table 7, which costs nothing."""
    if topk < 1:
        raise UserError(f"topk is {topk}: a search has to find at least one passage")

    async def search(query_list: list[str]) -> str:
        """Finds passages for several queries at once.

        Args:
            query_list: What to look for, each in a few words.
        """
        return await look_up(retriever, query_list, topk)

    return FunctionTool(search)


class RetrieverClient:
    """A retriever behind a URL, for any number of episodes at once."""

    def __init__(self, url: str, *, retry_policy: RetryPolicy | None = None) -> None:
        """UserError if it is not a URL. The path may be left out."""
        self._server = JsonServer(url, "retrieve", "retriever", retry_policy)

    async def retrieve(self, queries: Sequence[str], topk: int) -> list[list[Passage]]:
        """One request for all queries, made again while the server is busy or away."""

        def read(answer: Any) -> list[list[Passage]]:
            found = [[_passage(passage) for passage in passages[:topk]] for passages in answer["result"]]
            if len(found) != len(queries):
                raise ToolError(f"the retriever answered {len(found)} of {len(queries)} queries")
            return found

        return await self._server.ask({"queries": list(queries), "topk": topk, "return_scores": True}, read)


def _passage(found: dict[str, Any]) -> Passage:
    score = float(found["score"])
    if not math.isfinite(score):
        raise ValueError(f"a score of {score}")
    return Passage.of(found["document"]["contents"], score)


def retriever_named(name: str) -> Retriever:
    """The retriever of a corpus that an installed package offers, of a folder of .txt, .md or .jsonl files, or of the
    http:// URL of a server with `/retrieve`. UserError if there is nothing to search."""
    return RetrieverClient(name) if name.startswith(("http://", "https://")) else corpus(_folder(name).resolve())


def _folder(name: str) -> Path:
    if not name:
        raise UserError(
            "search has no corpus: name a folder of texts or the URL of a retriever, as in --set suite.corpus=FOLDER, "
            "or leave search and knowledge_searcher out of tools"
        )
    return installed_corpus(name) or Path(name)

"""The `search` tool: many queries at once, over whatever finds passages (section 4.1 and Appendix E of ParaManager)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from orgthink.grammar.toolcall import cut_middle
from orgthink.tools import installed_corpus
from orgthink.tools.passages import Retriever
from orgthink.tools.tool import MOST_RETURNED, FunctionTool
from orgthink.util.errors import ToolError, UserError

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


def retriever_named(name: str) -> Retriever:
    """What the word on the command line means; UserError if there is nothing to search.

    NAME                        a corpus that an installed package offers
    FOLDER                      a folder of .txt, .md or .jsonl files
    http://HOST:PORT            a server with Search-R1's `/retrieve`
    dense:ENCODER[:CORPUS]      an encoder's folder, and what it is to search: a corpus or a folder
    """
    if name.startswith(("http://", "https://")):
        from orgthink.tools.retriever_client import RetrieverClient

        return RetrieverClient(name)
    if name.startswith("dense:"):
        from orgthink.tools.dense import dense_corpus

        encoder, _, folder = name.removeprefix("dense:").partition(":")
        return dense_corpus(Path(encoder), _folder(folder))
    from orgthink.tools.corpus import corpus

    return corpus(_folder(name).resolve())


def _folder(name: str) -> Path:
    if not name:
        raise UserError(
            "search has no corpus: name a folder of texts or the URL of a retriever, as in --set suite.corpus=FOLDER, "
            "or leave search and knowledge_searcher out of tools"
        )
    return installed_corpus(name) or Path(name)

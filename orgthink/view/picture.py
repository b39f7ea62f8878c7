"""One episode: its picture as SVG, a lane for each agent over decoding steps; its page in a notebook; its text.

Text of models is never markup, and the picture has no script.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from orgthink.measure.latency import critical_path
from orgthink.measure.usage import sampled_tokens
from orgthink.record.episode import Episode, Origin, Trace
from orgthink.util.terminal import clean, excerpt, in_notebook, show
from orgthink.view import render
from orgthink.view.layout import Bar, Wait, layout

WIDTH, LEFT, LANE = 760, 170, 26
"""Pixels: of the picture, of the names, and of a lane."""
MOST_LANES = 60
"""Most agents that are drawn."""
SAMPLED, CRITICAL, ARROW, WAIT = "#9fb3cc", "#d2691e", "#8b9098", "#e4e5e3"
"""Colors of decoding, of the critical path, of forks and joins, and of waits: those of the page."""


def picture(episode: Episode) -> str:
    """The episode as HTML: its result, a lane for each agent with forks, joins and the critical path, and its texts."""
    grade = "not graded" if episode.grade is None else f"{episode.grade.correct} of {episode.grade.required} correct"
    path = f"critical path {critical_path(episode)} of {sampled_tokens(episode)} sampled tokens"
    facts = [episode.organization, episode.problem.id, grade, path, f"stop {episode.stop}", episode.error or ""]
    texts = f"{episode.problem.text}\n\n{'no answer' if episode.answer is None else episode.answer}"
    return (
        f"<figure style='margin:0'><figcaption>{escape(' · '.join(excerpt(fact) for fact in facts if fact))}"
        f"</figcaption>{_svg(episode)}<details><summary>question and answer</summary>"
        f"<pre style='white-space:pre-wrap'>{escape(clean(texts))}</pre></details></figure>"
    )


def grid(header: Sequence[str], rows: Sequence[Sequence[str]], caption: str) -> str:
    """A table as HTML."""
    lines = [("th", header), *(("td", row) for row in rows)]
    cells = ("".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in line) for tag, line in lines)
    return f"<table><caption>{escape(excerpt(caption, 2000))}</caption><tr>{'</tr><tr>'.join(cells)}</tr></table>"


def display(episode: Episode) -> None:
    """Show the page of an episode below the cell of a notebook; elsewhere print the episode as text."""
    if not in_notebook():
        return show(transcript(episode), end="")
    from IPython.display import display as below_the_cell

    # The sandbox gives the page an origin of its own: its script cannot reach the notebook.
    page = f"sandbox='allow-scripts' srcdoc='{escape(render([episode], title=episode.problem.id))}'"
    frame = f"<iframe style='width:100%;height:720px;border:0' {page}></iframe>"
    below_the_cell({"text/html": frame, "text/plain": repr(episode)}, raw=True)


def _svg(episode: Episode) -> str:
    """Names, then forks and joins, waits, decoding, and the critical path on top."""
    drawn, traces = layout(episode), episode.traces[:MOST_LANES]
    lanes = {trace.agent: LANE * (number + 1) for number, trace in enumerate(traces)}
    end = max(drawn.lives[agent].steps[1] for agent in lanes) or 1
    scale, height = (WIDTH - LEFT) / end, LANE * (len(lanes) + 1)
    names = [excerpt(f"{trace.role} {trace.agent.removeprefix(traces[0].agent).lstrip('/')}", 26) for trace in traces]
    left = f", {len(episode.traces) - len(traces)} more agents" if len(traces) < len(episode.traces) else ""

    def bar(part: Bar | Wait, color: str) -> str:
        x, width = LEFT + scale * part.steps[0], max(1.0, scale * (part.steps[1] - part.steps[0]))
        return f"<rect x='{x:.1f}' y='{lanes[part.agent]}' width='{width:.1f}' height='14' rx='2' fill='{color}'/>"

    parts = [
        f"<text x='{WIDTH}' y='14' text-anchor='end'>{end:g} decoding steps{left}</text>",
        *(f"<text x='8' y='{y + 11}'>{escape(name)}</text>" for name, y in zip(names, lanes.values(), strict=True)),
        *(
            f"<path d='M{LEFT + scale * arrow.steps:.1f},{lanes[arrow.parent] + 7}V{lanes[arrow.child] + 7}' "
            f"stroke='{ARROW}'><title>{arrow.kind} {escape(excerpt(arrow.key))}</title></path>"
            for arrow in drawn.arrows
            if arrow.child in lanes
        ),
        *(
            bar(part, color)
            for these, color in ((drawn.waits, WAIT), (drawn.bars, SAMPLED), (drawn.critical, CRITICAL))
            for part in these
            if part.agent in lanes
        ),
    ]
    size = f"viewBox='0 0 {WIDTH} {height}' width='{WIDTH}' height='{height}' style='max-width:100%'"
    return f"<svg {size} fill='currentColor' font-size='12' role='img'>{''.join(parts)}</svg>"


def transcript(episode: Episode) -> str:
    """Everything that the agents were told and said, in order of time, as in the case studies of ParaManager (Figures 7
    and 8). Model text stands there as it is."""
    turns = sorted((turn for trace in episode.traces for turn in _turns(trace)), key=lambda turn: turn[0])
    answer = "no answer" if episode.answer is None else episode.answer
    grade = "" if episode.grade is None else f" ({episode.grade.correct} of {episode.grade.required} correct)"
    blocks = [
        f"Episode {excerpt(episode.id)}",
        *(f"{excerpt(who)}:\n{text.strip()}" for _, who, text in turns),
        f"Answer: {answer}{grade}",
    ]
    return "\n\n".join(blocks) + "\n"


def _turns(trace: Trace) -> Iterator[tuple[float, str, str]]:
    """When an agent was told or said something, who it was, and the text."""
    model = f", {trace.model}" if trace.model else ""
    names = {
        Origin.PROMPT: "prompt",
        Origin.SAMPLED: trace.role + model,
        Origin.INJECTED: "told",
    }
    at = trace.start
    for span in trace.spans:
        at = at if span.start is None else max(at, span.start)
        yield at, f"{trace.agent} [{names[span.origin]}]", span.text
    if trace.is_code and trace.parent is not None:
        yield trace.end, f"{trace.agent} [{trace.role}, {trace.status}]", trace.returned or trace.error or ""

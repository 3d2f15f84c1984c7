"""The page of ``cudalint confirm --html``: each verdict with its source, its runs, and pictures of those that tell.

One file that needs nothing else. What is drawn stands in it as data, and as tables for those who cannot see it or
have no scripts.
"""

from __future__ import annotations

import html
import json
import re
from importlib import resources
from typing import TYPE_CHECKING

from cudalint import __version__
from cudalint.confirm.picture import MISSING, NOBODY, NOT_RUN, ONE, SEVERAL
from cudalint.findings import NOTHING, digits, plural
from cudalint.lazy import NamedTuple
from cudalint.report.verdicts import held

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from cudalint.confirm.picture import Chart, Map, Picture, Stretch, View
    from cudalint.confirm.runner import Outcome
    from cudalint.findings import Evidence

_LINE_END = re.compile(r"\r\n|\r|\n")
_AROUND = 4
"""Lines of source above and below the one that a verdict is about."""
_OPEN = 20
"""So many verdicts stand open on the page; of more, each is opened by whoever wants to see it."""
_ROWS = 40
"""Stretches of a map that its table has."""
_CODE = re.compile(r"`([^`]*)`")
_WORDS = {"confirmed": "confirmed", "not-reproduced": "not reproduced", "inconclusive": "inconclusive",
          "not-run": "not run"}  # fmt: skip
_STATES = {ONE: "written by one thread", SEVERAL: "written by several", MISSING: "due, and written by nobody",
           NOBODY: "written by nobody", NOT_RUN: "of blocks that were not run"}  # fmt: skip


class Group(NamedTuple):
    """The runs of one launch; ``about`` is the one that the verdict is about."""

    title: str
    outcomes: Sequence[Outcome]
    about: Outcome | None = None


class Exhibit(NamedTuple):
    """A verdict as the page shows it. ``source`` is the text that ``line`` (1-based) is of, ``first`` the number by
    which the user knows its first line; ``marked`` are the columns of that line (0-based, code points, end exclusive)
    that it is about, none for all."""

    title: str
    level: str
    message: str
    place: str
    source: bytes
    line: int
    marked: tuple[int, int] | None
    first: int
    witness: str
    help: str
    url: str
    evidence: Evidence
    groups: Sequence[Group]


def page(exhibits: Sequence[Exhibit], backend: str) -> Iterator[str]:
    """The page in pieces; ``backend`` says where the kernels ran."""
    folder = resources.files("cudalint.report")
    style, script = ((folder / name).read_text("utf-8") for name in ("page.css", "page.js"))
    counts = [(word, sum(e.evidence.verdict == word for e in exhibits)) for word in _WORDS]
    said = ", ".join(f"{digits(n)} {_WORDS[word]}" for word, n in counts if n) or "nothing to confirm"
    yield (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>cudalint: {_text(said)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        '<a class="skip" href="#verdicts">Skip to the verdicts</a>\n'
        f"<header>\n<h1>cudalint confirm</h1>\n<p>{_text(said)}. {_text(backend)}, by cudalint {__version__}.</p>\n"
    )
    yield _index(exhibits)
    if any(o.picture.maps for e in exhibits for g in e.groups for o in g.outcomes if o.picture is not None):
        yield _KEY
    yield '</header>\n<main id="verdicts">\n'
    for number, each in enumerate(exhibits, 1):
        yield from _exhibit(each, number, is_open=len(exhibits) <= _OPEN)
    yield f"</main>\n<script>\n{script}</script>\n</body>\n</html>\n"


_KEY = """<form class="key" aria-label="How elements are coloured">
<fieldset><legend>Colour elements by their writer's</legend>
<label><input type="radio" name="by" value="block" checked> block</label>
<label><input type="radio" name="by" value="thread"> thread</label>
<label><input type="radio" name="by" value="turn"> pass</label></fieldset>
<ul><li><i class="swatch" data-state="2"></i> several wrote it</li>
<li><i class="swatch" data-state="3"></i> due, and nobody wrote it</li>
<li><i class="swatch" data-state="0"></i> nobody wrote it</li>
<li><i class="swatch" data-state="4"></i> its block was not run</li></ul>
<p>A cell tells of itself under the pointer, and when the map has the focus and the arrow keys move over it.</p>
</form>
"""


def _index(exhibits: Sequence[Exhibit]) -> str:
    if not exhibits:
        return ""
    rows = "".join(
        f'<tr><td><span class="verdict {e.evidence.verdict}">{_WORDS[e.evidence.verdict]}</span></td>'
        f'<td><a href="#v{k}">{_text(e.title)}</a></td><td>{_text(e.place)}</td></tr>\n'
        for k, e in enumerate(exhibits, 1)
    )
    return (
        '<nav aria-label="Verdicts"><table><thead><tr><th scope="col">Verdict</th><th scope="col">Of</th>'
        f'<th scope="col">At</th></tr></thead><tbody>\n{rows}</tbody></table></nav>\n'
    )


def _exhibit(e: Exhibit, number: int, *, is_open: bool) -> Iterator[str]:
    evidence = e.evidence
    yield (
        f'<details class="exhibit" id="v{number}"{" open" * is_open}>\n<summary><h2>{_text(e.title)}</h2> '
        f'<span class="verdict {evidence.verdict}">{_WORDS[evidence.verdict]}</span></summary>\n'
    )
    if e.message:
        yield f'<p><span class="level {e.level}">{e.level}</span> {_prose(e.message)}</p>\n'
    yield _source(e)
    facts = [("Shown", _sizes(evidence) + _prose(evidence.reason or ""))] if evidence.reason else []
    if e.witness:
        facts.insert(0, ("Witness", _prose(e.witness)))
    if evidence.prediction is not None and evidence.prediction.words != NOTHING:
        facts.append(("Prediction", held(evidence, evidence.prediction)))
    if e.help:
        facts.append(("Help", _prose(e.help)))
    if e.url:
        facts.append(("Rule", f'<a href="{html.escape(e.url)}">{_text(e.url.rpartition("/")[2])}</a>'))
    yield "<dl>" + "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in facts) + "</dl>\n"
    yield _table(e.groups)
    for group in e.groups:
        for outcome in _telling(group):
            yield from _run(outcome, group.title)
    yield "</details>\n"


def _source(e: Exhibit) -> str:
    lines = _LINE_END.split(e.source.decode("utf-8", "replace"))
    first, last = max(1, e.line - _AROUND), min(len(lines), e.line + _AROUND)

    def code(n: int) -> str:
        line = lines[n - 1]
        if n != e.line or e.marked is None:
            return _text(line) or " "
        a, b = e.marked
        return f"{_text(line[:a])}<mark>{_text(line[a:b])}</mark>{_text(line[b:])}"

    shown = "".join(
        f'<li value="{n + e.first - 1}"{" class=here aria-current=true" if n == e.line else ""}>'
        f"<code>{code(n)}</code></li>"
        for n in range(first, last + 1)
    )
    return f'<figure class="source"><figcaption>{_text(e.place)}</figcaption><ol>{shown}</ol></figure>\n'


def _sizes(evidence: Evidence) -> str:
    parts = [f"{_text(name)} = {digits(value)}" for name, value in (evidence.sizes or {}).items()]
    for name, triple in (("grid", evidence.grid), ("block", evidence.block)):
        if triple is not None:
            parts.append(f"{name} ({', '.join(map(str, triple))})")
    return ", ".join(parts) + ": " if parts else ""


def _row(outcome: Outcome) -> str:
    return ", ".join(f"{name} = {digits(value)}" for name, value in outcome.trial.sizes.items()) or "no sizes"


def _table(groups: Sequence[Group]) -> str:
    """Sizes down, launches across; the run that the verdict is about is marked."""
    rows: dict[str, dict[str, Outcome]] = {}
    columns: dict[str, None] = {}
    for group in groups:
        for outcome in group.outcomes:
            column = f"{group.title}: {outcome.trial.label}" if group.title else outcome.trial.label
            columns.setdefault(column)
            rows.setdefault(_row(outcome), {})[column] = outcome
    if not rows:
        return ""
    abouts = [id(g.about) for g in groups if g.about is not None]

    def cell(outcome: Outcome | None) -> str:
        if outcome is None:
            return "<td></td>"
        mark = ' aria-current="true"' if id(outcome) in abouts else ""
        why = (outcome.fault.text if outcome.fault is not None else outcome.reason) or ""
        return f'<td class="{outcome.word.replace(" ", "-")}"{mark} title="{html.escape(why)}">{outcome.cell}</td>'

    head = "".join(f'<th scope="col">{_text(c)}</th>' for c in columns)
    body = "".join(
        f'<tr><th scope="row">{_text(size)}</th>{"".join(cell(cells.get(c)) for c in columns)}</tr>\n'
        for size, cells in rows.items()
    )
    return (
        '<div class="wide"><table class="runs"><caption>Runs: sizes down, launches across</caption><thead><tr><td></td>'
        f"{head}</tr></thead><tbody>\n{body}</tbody></table></div>\n"
    )


def _telling(group: Group) -> Iterator[Outcome]:
    """The run that the verdict is about, and the last one before it in which all is well, or any at all."""
    drawn = [o for o in group.outcomes if _drawn(o.picture)]
    about = group.about
    if about is not None and _drawn(about.picture):
        yield about
    at = next((k for k, o in enumerate(group.outcomes) if o is about), len(group.outcomes))
    well = [o for o in group.outcomes[:at] if o.word == "ok" and _drawn(o.picture)]
    alike = [o for o in well if about is not None and o.trial.label == about.trial.label] or well
    if alike:
        yield alike[-1]
    elif about is None and drawn:
        yield drawn[-1]


def _drawn(picture: Picture | None) -> bool:
    return picture is not None and bool(picture.maps or picture.charts or picture.events)


def _run(outcome: Outcome, title: str) -> Iterator[str]:
    picture, setup = outcome.picture, outcome.setup
    assert picture is not None
    assert setup is not None
    label = f"{title}: {outcome.trial.label}" if title else outcome.trial.label
    launch = f"grid ({', '.join(map(str, setup.grid))}), block ({', '.join(map(str, setup.block))})"
    yield (
        f'<section class="run"><h3>{_text(_row(outcome))}, {_text(label)}: '
        f'<span class="{outcome.word.replace(" ", "-")}">{_text(outcome.cell)}</span></h3>\n<p>{launch}'
        f"{'; of its blocks only those that tell were run' if picture.partial else ''}</p>\n"
    )
    if picture.events:
        yield "<ul>" + "".join(f"<li>{_prose(event)}</li>" for event in picture.events) + "</ul>\n"
    for each in picture.maps:
        yield from _map(each, setup.block)
    for chart in picture.charts:
        yield _chart(chart)
    yield "</section>\n"


def _map(drawn: Map, block: tuple[int, int, int]) -> Iterator[str]:
    yield f"<h4><code>{_text(drawn.name)}</code>, {plural(drawn.extent, 'element')}</h4>\n"
    for view in drawn.views:
        counts = {state: sum(s.cells for s in view.stretches if s.state == state) for state in _STATES}
        unit = "cell" if view.each > 1 else "element"
        words = ", ".join(f"{plural(n, unit)} {_STATES[state]}" for state, n in counts.items() if n)
        each = f", {digits(view.each)} a cell" if view.each > 1 else ""
        span = f"elements {digits(view.first)} to {digits(view.end - 1)}{each}"
        data = {"kind": "map", "first": view.first, "each": view.each, "end": view.end, "block": block,
                "stretches": [list(s) for s in view.stretches]}  # fmt: skip
        yield _canvas(f"{span}: {words}", data, _stretches(view, block))


def _stretches(view: View, block: tuple[int, int, int]) -> str:
    rows = []
    at = view.first
    for s in view.stretches[:_ROWS]:
        end = min(view.end, at + s.cells * view.each) - 1
        where = digits(at) if at == end else f"{digits(at)} to {digits(end)}"
        rows.append(f"<tr><td>{where}</td><td>{_who(s, block)}</td></tr>")
        at = end + 1
    if len(view.stretches) > _ROWS:
        rows.append(f"<tr><td>{digits(at)} and on</td><td>not listed</td></tr>")
    return f'<thead><tr><th scope="col">Elements</th><th scope="col">Written by</th></tr></thead><tbody>{"".join(rows)}'


def _who(s: Stretch, block: tuple[int, int, int]) -> str:
    if s.state not in (ONE, SEVERAL):
        return {MISSING: "nobody, though they are due", NOBODY: "nobody", NOT_RUN: "no block that was run"}[s.state]
    last = s.thread + (s.cells - 1) * s.step
    threads = f"thread {s.thread}" if last == s.thread else f"threads {s.thread} to {last}"
    step = f", every {abs(s.step)}" if abs(s.step) > 1 and s.cells > 2 else ""
    turn = f", pass {s.turn}" if s.turn > 0 else ""
    more = ""
    if s.state == SEVERAL:
        size = block[0] * block[1] * block[2] or 1
        more = f", and thread {s.other % size} of block {s.other // size}{' and on' if s.cells > 1 else ''}"
    return f"block {s.block}, {threads}{step}{turn}{more}"


def _chart(chart: Chart) -> str:
    total = sum(n for n, _ in chart.arrivals)
    most = max(k for _, k in chart.arrivals)
    here = sum(n for n, k in chart.arrivals if k == most)
    often = "once" if most == 1 else f"{digits(most)} times"
    words = f"{digits(here)} of {plural(total, 'thread')} of block {chart.block} arrive {often}"
    if chart.others:
        words += f"; so it is in {plural(chart.others, 'more block')}"
    rows, at = [], 0
    for count, arrivals in chart.arrivals[:_ROWS]:
        threads = f"{at}" if count == 1 else f"{at} to {at + count - 1}"
        rows.append(f"<tr><td>{threads}</td><td>{digits(arrivals)}</td></tr>")
        at += count
    if len(chart.arrivals) > _ROWS:
        rows.append(f"<tr><td>{at} and on</td><td>not listed</td></tr>")
    head = '<thead><tr><th scope="col">Threads</th><th scope="col">Arrivals</th></tr></thead><tbody>'
    data = {"kind": "barrier", "arrivals": [list(x) for x in chart.arrivals], "block": chart.block}
    title = f"<h4>Barrier on line {chart.line}: <code>{_text(chart.text)}</code></h4>\n"
    return title + _canvas(f"a row is a warp: {words}", data, head + "".join(rows))


def _canvas(words: str, data: object, table: str) -> str:
    text = json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")
    return (
        f'<figure class="map"><figcaption>{_text(words)}</figcaption>'
        f'<canvas tabindex="0" role="application" aria-roledescription="map" aria-label="{html.escape(words)}">'
        f'</canvas><output aria-live="polite"></output><script type="application/json">{text}</script>'
        f"<details><summary>The same as a table</summary><table>{table}</tbody></table></details></figure>\n"
    )


_text: Callable[[str], str] = html.escape


def _prose(text: str) -> str:
    """Escaped text, with what stands in backquotes as code."""
    return _CODE.sub(r"<code>\1</code>", html.escape(text))


__all__ = ["Exhibit", "Group", "page"]

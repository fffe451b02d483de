"""Draws a session as SVG: a lane for each rail, a column for each request with its context above, arrows to subagents.

It has no script, font or link, so that any browser shows it. Everything from logs is escaped.
"""

from __future__ import annotations

from burnctl.render import misses
from burnctl.render.names import short_id
from burnctl.render.numbers import counted, money, number
from burnctl.render.text import clean, cut

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

_WIDTH, _LEFT, _RIGHT, _TOP = 1200, 170, 30, 96
_LANE, _COLUMNS, _CONTEXT = 138, 74, 26
_LETTER = 5.5
_PARTS = {"fresh": "#d9534f", "write": "#f0ad4e", "read": "#5bc0de", "output": "#a569bd"}
_TITLES = {"fresh": "uncached input", "write": "cache writes", "read": "cache reads", "output": "output"}
_STYLE = (
    "text{font-family:ui-sans-serif,system-ui,sans-serif;font-size:12px;fill:#222}"
    ".d{fill:#777;font-size:11px}.t{font-size:18px;font-weight:600}.b{font-weight:600}"
    ".l{stroke:#ddd;stroke-width:1}.c{fill:#eef3f7;stroke:#9db4c6;stroke-width:1}"
    ".a{fill:none;stroke:#999;stroke-width:1.2;stroke-dasharray:4 3}.m{stroke:#8e44ad;stroke-dasharray:3 3}"
    ".x{fill:#c0392b}.s{fill:#777;font-size:9px}"
)


def drawn(answer: Mapping[str, Any], *, embedded: bool = False) -> str:
    """The picture as text: a file of its own, or `embedded` in a page that has the styles."""
    return "\n".join(_Picture(answer).lines(embedded=embedded))


class _Picture:
    def __init__(self, answer: Mapping[str, Any]) -> None:
        self._answer = answer
        self._lanes: Sequence[Mapping[str, Any]] = answer["lanes"]
        steps = [step for lane in self._lanes for step in lane["steps"]]
        self._highest = max((step["costUsd"] or 0 for step in steps), default=0) or 1
        self._largest = max((step["context"] for step in steps), default=0) or 1
        # All lanes share one order of time, so that what a subagent did stands below where it was started.
        moments = sorted(
            (step["at"], n, m) for n, lane in enumerate(self._lanes) for m, step in enumerate(lane["steps"])
        )
        wide = (_WIDTH - _LEFT - _RIGHT) / max(len(moments), 1)
        self._column = min(wide, 48.0)
        self._x = {(n, m): _LEFT + at * self._column for at, (_, n, m) in enumerate(moments)}

    def lines(self, *, embedded: bool) -> Iterator[str]:
        height = _TOP + _LANE * len(self._lanes) + 30
        if embedded:
            yield f'<svg class="flow" viewBox="0 0 {_WIDTH} {height}" role="img">'
        else:
            yield (
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" '
                f'height="{height}" role="img">'
            )
            yield f"<style>{_STYLE}</style>"
            yield f'<rect width="{_WIDTH}" height="{height}" fill="#fff"/>'
        yield from self._heading()
        for n, lane in enumerate(self._lanes):
            yield from self._lane(n, lane)
        for n, lane in enumerate(self._lanes):
            yield from self._arrow(n, lane)
        if self._answer["moreLanes"]:
            more = self._answer["moreLanes"]
            told = f"and {counted(more['count'], 'more subagent')} for {money(more['costUsd'])}"
            yield _text(16, height - 12, told, "d")
        yield "</svg>"

    def _heading(self) -> Iterator[str]:
        answer = self._answer
        totals = answer["totals"]
        yield _text(16, 30, cut(clean(answer["title"] or answer["sessionId"]), 110), "t")
        project = f" · {clean(answer['project'])}" if answer["project"] else ""
        said = f"{short_id(answer['sessionId'])} · {counted(totals['turns'], 'request')} · {_price(totals['costUsd'])}"
        yield _text(16, 50, cut(said + project, 150), "d")
        x = 16
        for name, color in _PARTS.items():
            yield f'<rect x="{x}" y="62" width="10" height="10" fill="{color}"/>'
            yield _text(x + 15, 71, _TITLES[name], "d")
            x += 110
        yield '<rect class="c" x="456" y="62" width="10" height="10"/>' + _text(471, 71, "size of the context", "d")
        yield '<line class="m" x1="600" x2="600" y1="60" y2="74"/>' + _text(607, 71, "a new context begins", "d")
        yield '<circle class="x" cx="772" cy="67" r="3"/>' + _text(780, 71, "a call failed", "d")
        yield _text(866, 71, "↩7 continues from request 7", "d")

    def _lane(self, n: int, lane: Mapping[str, Any]) -> Iterator[str]:
        top = _TOP + _LANE * n
        base = top + _CONTEXT + _COLUMNS
        yield f'<line class="l" x1="16" x2="{_WIDTH - 16}" y1="{base}" y2="{base}"/>'
        named = lane["type"] or ("main" if n == 0 else "subagent")
        yield _text(16, base - 34, cut(clean(named), 22), "b")
        who = lane["railId"] if lane["railId"] != "main" else lane["sessionId"]
        yield _text(16, base - 19, cut(clean(short_id(who)), 24), "d") if n else ""
        paid = f", {money(lane['costUsd'])}" if lane["costUsd"] is not None else ""
        yield _text(16, base - 4, counted(lane["turns"], "request") + paid, "d")
        yield from self._context(n, lane, top)
        for m, step in enumerate(lane["steps"]):
            yield from self._step(self._x[n, m], step, base)

    def _context(self, n: int, lane: Mapping[str, Any], top: int) -> Iterator[str]:
        """How large the context was, as an area above the columns."""
        foot = top + _CONTEXT
        points = []
        for m, step in enumerate(lane["steps"]):
            x, y = self._x[n, m], foot - (_CONTEXT - 4) * step["context"] / self._largest
            points += [f"{x:.1f},{y:.1f}", f"{x + self._column:.1f},{y:.1f}"]
        if points:
            first, last = points[0].split(",")[0], points[-1].split(",")[0]
            yield f'<polygon class="c" points="{first},{foot} {" ".join(points)} {last},{foot}"/>'

    def _step(self, x: float, step: Mapping[str, Any], base: int) -> Iterator[str]:
        wide = max(self._column * 0.8, 0.6)
        yield f"<g><title>{_escaped(_description(step))}</title>"
        y = float(base)
        for name, color in _PARTS.items():
            high = _COLUMNS * step["parts"][name] / self._highest if step["parts"] else 0
            if high > 0.05:
                y -= high
                yield f'<rect x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{high:.1f}" fill="{color}"/>'
        if step["began"]:
            yield f'<line class="m" x1="{x - 1:.1f}" x2="{x - 1:.1f}" y1="{base - _COLUMNS - _CONTEXT}" y2="{base}"/>'
        if any(call["isError"] for call in step["calls"]):
            yield f'<circle class="x" cx="{x + wide / 2:.1f}" cy="{base + 6}" r="2.5"/>'
        if self._column >= 26:
            back = f" ↩{step['goesOnFrom']}" if step["goesOnFrom"] is not None else ""
            yield _text(x, base + 19, f"{step['turnIndex']}{'+' * step['beside']}{back}", "d")
            tool = clean(step["calls"][0]["tool"]) if step["calls"] else ""
            yield _text(x, base + 30, cut(tool, int(self._column / _LETTER)), "s") if tool else ""
        yield "</g>"

    def _arrow(self, n: int, lane: Mapping[str, Any]) -> Iterator[str]:
        """From the turn that started a rail to its first turn."""
        by = lane["startedBy"]
        if by is None or not lane["steps"]:
            return
        steps = self._lanes[by["lane"]]["steps"]
        above = [m for m, step in enumerate(steps) if step["turnIndex"] <= by["turnIndex"] and not step["beside"]]
        if not above:
            return
        x1 = self._x[by["lane"], above[-1]] + self._column * 0.4
        y1 = _TOP + _LANE * by["lane"] + _CONTEXT + _COLUMNS + 2
        x2, y2 = self._x[n, 0], _TOP + _LANE * n + _CONTEXT + _COLUMNS - 8
        yield f'<path class="a" d="M{x1:.1f},{y1} C{x1:.1f},{y2} {x1:.1f},{y2} {x2 - 3:.1f},{y2}"/>'


def call_name(call: Mapping[str, Any]) -> str:
    """`Read src/app.py`, `Bash npm test (3 times, failed)`."""
    about = [f"{call['times']:,} times"] if call["times"] > 1 else []
    about += ["failed"] if call["isError"] else []
    name = f"{call['tool']} {call['target'] or ''}".strip()
    return f"{name} ({', '.join(about)})" if about else name


def _description(step: Mapping[str, Any]) -> str:
    first, last = step["turnIndex"], step["lastTurnIndex"]
    turn = f"billed with request {first}" if step["beside"] else f"request {first}"
    lines = [turn if first == last else f"requests {first}-{last}"]
    lines += [f"{money(step['costUsd'])}, {number(step['context'])} tokens of context", clean(step["model"])]
    lines += [f"continues from request {step['goesOnFrom']}"] if step["goesOnFrom"] is not None else []
    lines += [call_name(call) for call in step["calls"]]
    if step["miss"]:
        lines.append(f"cache miss: {misses.sentence(step['miss'])}")
    return "\n".join(clean(line) for line in lines)


def _price(cost: float | None) -> str:
    return money(cost) if cost is not None else "no price"


def _text(x: float, y: float, text: str, style: str = "") -> str:
    named = f' class="{style}"' if style else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{named}>{_escaped(text)}</text>'


def _escaped(text: str) -> str:
    from html import escape

    # XML has no way to write most control characters.
    return escape("".join(char for char in text if char >= " " or char == "\n"))

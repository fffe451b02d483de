"""`burnctl flow`: the requests of a session in order, as text, an SVG picture or a Mermaid flowchart.

The flowchart of a long session has one node for each prompt. The picture has no script, font or link. All text from
logs is escaped.
"""

from __future__ import annotations

from burnctl import flags, session_choice
from burnctl.daemon import reach
from burnctl.errors import UsageError
from burnctl.output import present, write_file
from burnctl.render.names import enough_of_id, last_name, miss_sentence, miss_words, short_id, short_model
from burnctl.render.notes import add_caveats, backfill_line
from burnctl.render.numbers import bar, counted, money, number
from burnctl.render.text import clean, cut
from burnd.contract import Params, param
from burnd.contract.reports import FlowParams

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from burnctl.render.screen import Screen

    _Node = list[Mapping[str, Any]]

HELP = (
    "shows how a session went: its requests in order with their cost and their calls, how the context grew, where the "
    "cache was missed and where a new context began, and the subagents and child sessions that were started. --svg "
    "writes a picture that any browser shows, --mermaid prints a diagram for a document"
)
EXAMPLES = ("burnctl flow", "burnctl flow 0f9c1d2e --svg session.svg", "burnctl flow 0f9c1d2e --mermaid")
_TERMINAL_STEPS, _PICTURE_STEPS = 120, 400
_BAR, _BAR_FROM = 10, 60  # columns
_CALLS = 4
_NARROWEST = 7


class PicturesFlags(Params):
    svg: str | None = param(default=None, help="write an SVG picture to FILE (- is stdout)", metavar="FILE")
    mermaid: bool = param(default=False, help="print a Mermaid flowchart")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    session_choice.add_session(parser)
    picture = parser.add_mutually_exclusive_group()
    flags.add(picture, PicturesFlags)
    flags.add(parser, FlowParams, skip=("session",))
    flags.report(parser)


def run(options: argparse.Namespace) -> int:
    is_picture = options.svg is not None or options.mermaid
    if options.json and is_picture:
        raise UsageError("--json prints the answer itself, not a picture", "leave out --json, or --svg and --mermaid")
    steps = None if options.json else _PICTURE_STEPS if is_picture else _TERMINAL_STEPS
    client = reach(options)
    answer = flags.ask(
        client,
        FlowParams,
        options,
        session=session_choice.chosen_session(client, options),
        limit=options.limit or steps,
    )
    if not is_picture:
        return present(options, answer, draw)
    from burnctl.daemon import print_note

    if line := backfill_line(answer):
        print_note(line)
    if options.mermaid:
        print(draw_mermaid(answer))
        return 0
    write_file(options.svg, draw_svg(answer) + "\n")
    return 0


def draw(answer: Mapping[str, Any], screen: Screen) -> str:
    add_caveats(answer, screen)
    return "\n".join(_Drawing(answer, screen).lines())


class _Drawing:
    def __init__(self, answer: Mapping[str, Any], screen: Screen) -> None:
        self._answer, self._screen = answer, screen
        steps = [step for lane in answer["lanes"] for step in lane["steps"]]
        self._highest = max((step["costUsd"] or 0 for step in steps), default=0)
        self._largest = max((step["context"] for step in steps), default=0)
        self._numbers = max(_NARROWEST, *(len(step_numbers(step)) for step in steps)) if steps else _NARROWEST
        self._bar = _BAR if screen.is_pipe or screen.width >= _BAR_FROM else 0
        self._width = 1_000 if screen.is_pipe else screen.width
        self._below: dict[tuple[int, int], list[int]] = {}
        self._roots = []
        for n, lane in enumerate(answer["lanes"]):
            by = lane["startedBy"]
            if by is None or by["lane"] >= n:
                self._roots.append(n)
            else:
                self._below.setdefault((by["lane"], by["turnIndex"]), []).append(n)

    def lines(self) -> Iterator[str]:
        answer, screen = self._answer, self._screen
        totals = answer["totals"]
        facts = [last_name(answer["project"]), enough_of_id(answer), counted(totals["turns"], "request")]
        facts += [money(totals["costUsd"]) if totals["costUsd"] is not None else "no price"]
        if answer["title"]:
            yield screen.paint(cut(clean(answer["title"]), self._width), "bold")
        yield screen.paint(cut(clean(" · ".join(filter(None, facts))), self._width), "dim")
        yield ""
        heads = f"{'request':>{self._numbers}} {'cost':>8}  {'':{self._bar}} context  what it did"
        yield screen.paint(cut(heads, self._width), "bold")
        for n in self._roots:
            yield from self._lane(n, "", with_name=n > 0)
        if more := answer["moreLanes"]:
            yield screen.paint(f"and {counted(more['count'], 'more subagent')} for {money(more['costUsd'])}", "dim")

    def _lane(self, n: int, indent: str, *, with_name: bool) -> Iterator[str]:
        lane = self._answer["lanes"][n]
        if with_name:
            name = clean(lane["type"] or "subagent")
            rail = clean(short_id(lane["railId"] if lane["railId"] != "main" else lane["sessionId"]))
            cost = f", {money(lane['costUsd'])}" if lane["costUsd"] is not None else ""
            line = f"{indent}└ {name} {rail}: {counted(lane['turns'], 'request')}{cost}"
            yield self._screen.paint(cut(line, self._width), "cyan")
        for step in lane["steps"]:
            yield from self._step(step, indent + ("  " if with_name else ""))
            for turn in range(step["turnIndex"], step["lastTurnIndex"] + 1):
                for below in self._below.pop((n, turn), ()):  # several steps may have the turn
                    yield from self._lane(below, indent + "      ", with_name=True)

    def _step(self, step: Mapping[str, Any], indent: str) -> Iterator[str]:
        if step["began"]:
            yield self._mark(indent, "a new context begins")
        elif step["goesOnFrom"] is not None:
            yield self._mark(indent, f"back to request {step['goesOnFrom']}")
        share = bar(step["costUsd"] or 0, self._highest, self._bar)
        if not self._highest:  # no prices
            share = bar(step["context"], self._largest, self._bar)
        head = f"{indent}{step_numbers(step):>{self._numbers}} {money(step['costUsd']):>8}  "
        context = f" {number(step['context']):>7}  "
        room = max(self._width - len(head) - self._bar - len(context), 4)
        calls = cut(clean(calls_of(step)), room)
        style = "red" if any(call["isError"] for call in step["calls"]) else ""
        color = "yellow" if step["miss"] else "cyan"
        painted = self._screen.paint(share[: self._bar], color)
        yield f"{head}{painted}{context}{self._screen.paint(calls, style)}".rstrip()

    def _mark(self, indent: str, text: str) -> str:
        return self._screen.paint(cut(f"{indent}{'':>{self._numbers}} ── {text} ──", self._width), "magenta")


def step_numbers(step: Mapping[str, Any]) -> str:
    """`14`, `14+` with what was billed with it, `12-15` for several requests."""
    first, last = step["turnIndex"], step["lastTurnIndex"]
    return f"{first}{'+' * step['beside']}" if first == last else f"{first}-{last}"


def calls_of(step: Mapping[str, Any]) -> str:
    """`prompt, Read src/app.py, Bash npm test (3 times, failed)`."""
    words = [f"cache miss ({miss_words(step['miss'])})"] if step["miss"] else []
    words += ["prompt"] if step["asked"] else []
    words += [call_name(call) for call in step["calls"][:_CALLS]]
    if len(step["calls"]) > _CALLS:
        words.append(f"{len(step['calls']) - _CALLS} more")
    if step["beside"]:
        words.append(f"{short_model(step['model'])}, billed with request {step['turnIndex']}")
    return ", ".join(words) or "answer"


_WIDTH, _LEFT, _RIGHT, _TOP = 1200, 170, 30, 96
_LANE, _COLUMNS, _CONTEXT = 138, 74, 26
_LETTER = 5.5
_PARTS = {"fresh": "#d9534f", "write": "#f0ad4e", "read": "#5bc0de", "output": "#a569bd"}
_PART_TITLES = {"fresh": "uncached input", "write": "cache writes", "read": "cache reads", "output": "output"}
_SVG_STYLE = (
    "text{font-family:ui-sans-serif,system-ui,sans-serif;font-size:12px;fill:#222}"
    ".d{fill:#777;font-size:11px}.t{font-size:18px;font-weight:600}.b{font-weight:600}"
    ".l{stroke:#ddd;stroke-width:1}.c{fill:#eef3f7;stroke:#9db4c6;stroke-width:1}"
    ".a{fill:none;stroke:#999;stroke-width:1.2;stroke-dasharray:4 3}.m{stroke:#8e44ad;stroke-dasharray:3 3}"
    ".x{fill:#c0392b}.s{fill:#777;font-size:9px}"
)


def draw_svg(answer: Mapping[str, Any], *, embedded: bool = False) -> str:
    """The picture as a whole file, or `embedded` in a page that has the styles."""
    return "\n".join(_Picture(answer).lines(embedded=embedded))


class _Picture:
    def __init__(self, answer: Mapping[str, Any]) -> None:
        self._answer = answer
        self._lanes: Sequence[Mapping[str, Any]] = answer["lanes"]
        steps = [step for lane in self._lanes for step in lane["steps"]]
        self._highest = max((step["costUsd"] or 0 for step in steps), default=0) or 1
        self._largest = max((step["context"] for step in steps), default=0) or 1
        # All lanes share one order of time: a subagent is drawn below the request that started it.
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
            yield f"<style>{_SVG_STYLE}</style>"
            yield f'<rect width="{_WIDTH}" height="{height}" fill="#fff"/>'
        answer = self._answer
        totals = answer["totals"]
        yield _svg_text(16, 30, cut(clean(answer["title"] or answer["sessionId"]), 110), "t")
        project = f" · {clean(answer['project'])}" if answer["project"] else ""
        price = "no price" if totals["costUsd"] is None else money(totals["costUsd"])
        facts = f"{enough_of_id(answer)} · {counted(totals['turns'], 'request')} · {price}"
        yield _svg_text(16, 50, cut(facts + project, 150), "d")
        x = 16
        for name, color in _PARTS.items():
            yield f'<rect x="{x}" y="62" width="10" height="10" fill="{color}"/>'
            yield _svg_text(x + 15, 71, _PART_TITLES[name], "d")
            x += 110
        yield '<rect class="c" x="456" y="62" width="10" height="10"/>' + _svg_text(471, 71, "size of the context", "d")
        yield '<line class="m" x1="600" x2="600" y1="60" y2="74"/>' + _svg_text(607, 71, "a new context begins", "d")
        yield '<circle class="x" cx="772" cy="67" r="3"/>' + _svg_text(780, 71, "a call failed", "d")
        yield _svg_text(866, 71, "↩7 continues from request 7", "d")
        for n, lane in enumerate(self._lanes):
            yield from self._lane(n, lane)
        for n, lane in enumerate(self._lanes):
            yield from self._arrow(n, lane)
        if self._answer["moreLanes"]:
            more = self._answer["moreLanes"]
            more_text = f"and {counted(more['count'], 'more subagent')} for {money(more['costUsd'])}"
            yield _svg_text(16, height - 12, more_text, "d")
        yield "</svg>"

    def _lane(self, n: int, lane: Mapping[str, Any]) -> Iterator[str]:
        top = _TOP + _LANE * n
        base = top + _CONTEXT + _COLUMNS
        yield f'<line class="l" x1="16" x2="{_WIDTH - 16}" y1="{base}" y2="{base}"/>'
        label = lane["type"] or ("main" if n == 0 else "subagent")
        yield _svg_text(16, base - 34, cut(clean(label), 22), "b")
        who = lane["railId"] if lane["railId"] != "main" else lane["sessionId"]
        yield _svg_text(16, base - 19, cut(clean(short_id(who)), 24), "d") if n else ""
        cost = f", {money(lane['costUsd'])}" if lane["costUsd"] is not None else ""
        yield _svg_text(16, base - 4, counted(lane["turns"], "request") + cost, "d")
        foot, points = top + _CONTEXT, []
        for m, step in enumerate(lane["steps"]):
            x, y = self._x[n, m], foot - (_CONTEXT - 4) * step["context"] / self._largest
            points += [f"{x:.1f},{y:.1f}", f"{x + self._column:.1f},{y:.1f}"]
        if points:
            first, last = points[0].split(",")[0], points[-1].split(",")[0]
            yield f'<polygon class="c" points="{first},{foot} {" ".join(points)} {last},{foot}"/>'
        for m, step in enumerate(lane["steps"]):
            yield from self._step(self._x[n, m], step, base)

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
            yield _svg_text(x, base + 19, f"{step['turnIndex']}{'+' * step['beside']}{back}", "d")
            tool = clean(step["calls"][0]["tool"]) if step["calls"] else ""
            yield _svg_text(x, base + 30, cut(tool, int(self._column / _LETTER)), "s") if tool else ""
        yield "</g>"

    def _arrow(self, n: int, lane: Mapping[str, Any]) -> Iterator[str]:
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
        lines.append(f"cache miss: {miss_sentence({'reason': step['miss']})}")
    return "\n".join(clean(line) for line in lines)


def _svg_text(x: float, y: float, text: str, style: str = "") -> str:
    attribute = f' class="{style}"' if style else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{attribute}>{_escaped(text)}</text>'


def _escaped(text: str) -> str:
    from html import escape

    # XML cannot have most control characters.
    return escape("".join(char for char in text if char >= " " or char == "\n"))


_MOST_NODES = 120
_ENTITIES = {"#": "#35;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "&": "#amp;", "`": "#96;", "|": "#124;", ";": "#59;"}


def draw_mermaid(answer: Mapping[str, Any]) -> str:
    return "\n".join(_mermaid_lines(answer, list(_nodes(answer["lanes"]))))


def _mermaid_lines(answer: Mapping[str, Any], lanes: Sequence[Sequence[_Node]]) -> Iterator[str]:
    totals = answer["totals"]
    title = answer["title"] or enough_of_id(answer)
    yield "flowchart TD"
    yield f'  s["{_label(title)}<br/>{counted(totals["turns"], "request")}, {_price_label(totals["costUsd"])}"]'
    for n, (lane, nodes) in enumerate(zip(answer["lanes"], lanes, strict=True)):
        if nodes:
            kind = lane["type"] or ("main" if n == 0 else "subagent")
            who = "" if n == 0 else f" {short_id(lane['railId'] if lane['railId'] != 'main' else lane['sessionId'])}"
            facts = f"{counted(lane['turns'], 'request')}, {_price_label(lane['costUsd'])}"
            yield f'  subgraph l{n}["{_label(kind + who)}: {facts}"]'
            for at, steps in enumerate(nodes):
                yield f'    n{n}_{at}["{_node_text(steps)}"]'
                back = steps[0]["goesOnFrom"]
                before = at - 1 if back is None else min(_place(nodes, back) or 0, at - 1)
                if at:
                    yield f"    n{n}_{before} --> n{n}_{at}"
            yield "  end"
            yield f"  {_start(n, lane, lanes)} --> n{n}_0"
    if answer["moreLanes"]:
        more = answer["moreLanes"]
        yield f'  s -.-> more["{counted(more["count"], "more subagent")}<br/>{_price_label(more["costUsd"])}"]'


def _nodes(lanes: Sequence[Mapping[str, Any]]) -> Iterator[Sequence[_Node]]:
    """A node for each step; of many steps one for those up to the next prompt, new context or rewind."""
    each = sum(len(lane["steps"]) for lane in lanes) <= _MOST_NODES
    remaining = _MOST_NODES
    for lane in lanes:
        nodes: list[_Node] = []
        for step in lane["steps"]:
            if each or not nodes or step["asked"] or step["began"] or step["goesOnFrom"] is not None:
                nodes.append([])
            nodes[-1].append(step)
        nodes = nodes[:remaining]
        remaining -= len(nodes)
        yield nodes


def _place(nodes: Sequence[_Node], turn: int) -> int | None:
    """The first node that has this turn."""
    return next((at for at, steps in enumerate(nodes) if turn <= steps[-1]["lastTurnIndex"]), None)


def _start(n: int, lane: Mapping[str, Any], lanes: Sequence[Sequence[_Node]]) -> str:
    by = lane["startedBy"]
    at = _place(lanes[by["lane"]], by["turnIndex"]) if by is not None and by["lane"] < n else None
    return f"n{by['lane']}_{at}" if by is not None and at is not None else "s"


def _node_text(steps: Sequence[Mapping[str, Any]]) -> str:
    first, last = steps[0]["turnIndex"], steps[-1]["lastTurnIndex"]
    request = f"billed with request {first}" if steps[0]["beside"] else f"request {first}"
    requests = request if first == last else f"requests {first}-{last}"
    costs = [step["costUsd"] for step in steps if step["costUsd"] is not None]
    calls: dict[str, int] = {}
    for step in steps:
        for call in step["calls"]:
            calls[call["tool"]] = calls.get(call["tool"], 0) + call["times"]
    often = sorted(calls.items(), key=lambda one: -one[1])
    names = [f"{tool} ({times})" if times > 1 else tool for tool, times in often]
    context = f"{number(max(step['context'] for step in steps))} context"
    begins = "a new context begins<br/>" if steps[0]["began"] else ""
    lines = [f"{requests}: {_price_label(sum(costs) if costs else None)}", context]
    missed = dict.fromkeys(miss_words(step["miss"]) for step in steps if step["miss"])
    lines += [_label(f"cache miss ({', '.join(missed)})")] if missed else []
    lines += [_label(", ".join(names[:6]))] if names else []
    return begins + "<br/>".join(lines)


def _price_label(usd: float | None) -> str:
    return _label(money(usd))


def _label(text: str) -> str:
    plain = cut(clean(text), 80)
    return "".join(_ENTITIES.get(char, char) for char in plain)

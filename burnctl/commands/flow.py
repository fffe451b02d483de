"""`burnctl flow`: the requests of a session in order, with their cost, context, calls and subagents."""

from __future__ import annotations

from burnctl import flags, naming
from burnctl import options as own
from burnctl.errors import Usage
from burnctl.starting import reach
from burnd.contract.reports import FlowParams

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping
    from typing import Any

    from burnctl.render.screen import Screen

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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    naming.add_session(parser)
    picture = parser.add_mutually_exclusive_group()
    flags.add(picture, own.Pictures)
    flags.add(parser, FlowParams, skip=("session",))
    flags.report(parser)


def run(options: argparse.Namespace) -> int:
    from burnctl.output import present

    is_picture = options.svg is not None or options.mermaid
    if options.json and is_picture:
        raise Usage("--json prints the answer itself, not a picture", "leave out --json, or --svg and --mermaid")
    steps = None if options.json else _PICTURE_STEPS if is_picture else _TERMINAL_STEPS
    client = reach(options)
    answer = flags.ask(
        client, FlowParams, options, session=naming.chosen_session(client, options), limit=options.limit or steps
    )
    if not is_picture:
        return present(options, answer, draw)
    from burnctl.render.notes import backfill_line
    from burnctl.starting import say

    if line := backfill_line(answer):
        say(line)
    if options.mermaid:
        from burnctl.render.flow_mermaid import drawn as as_mermaid

        print(as_mermaid(answer))
        return 0
    from burnctl.output import write_file
    from burnctl.render.flow_svg import drawn as as_svg

    write_file(options.svg, as_svg(answer) + "\n")
    return 0


def draw(answer: Mapping[str, Any], screen: Screen) -> str:
    """A line for each request, or for each few requests of a long session."""
    from burnctl.render.notes import add_caveats

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
        from burnctl.render.names import last_name, short_id
        from burnctl.render.numbers import counted, money
        from burnctl.render.text import clean, cut

        answer, screen = self._answer, self._screen
        totals = answer["totals"]
        facts = [last_name(answer["project"]), short_id(answer["sessionId"]), counted(totals["turns"], "request")]
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
        from burnctl.render.names import short_id
        from burnctl.render.numbers import counted, money
        from burnctl.render.text import clean, cut

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
        from burnctl.render.chart import bar
        from burnctl.render.numbers import money, number
        from burnctl.render.text import clean, cut

        if step["began"]:
            yield self._mark(indent, "a new context begins")
        elif step["goesOnFrom"] is not None:
            yield self._mark(indent, f"back to request {step['goesOnFrom']}")
        share = bar(step["costUsd"] or 0, self._highest, self._bar)
        if not self._highest:  # nothing has a price
            share = bar(step["context"], self._largest, self._bar)
        left = f"{indent}{step_numbers(step):>{self._numbers}} {money(step['costUsd']):>8}  "
        context = f" {number(step['context']):>7}  "
        room = max(self._width - len(left) - self._bar - len(context), 4)
        calls = cut(clean(calls_of(step)), room)
        style = "red" if any(call["isError"] for call in step["calls"]) else ""
        color = "yellow" if step["miss"] else "cyan"
        painted = self._screen.paint(share[: self._bar], color)
        yield f"{left}{painted}{context}{self._screen.paint(calls, style)}".rstrip()

    def _mark(self, indent: str, text: str) -> str:
        from burnctl.render.text import cut

        return self._screen.paint(cut(f"{indent}{'':>{self._numbers}} ── {text} ──", self._width), "magenta")


def step_numbers(step: Mapping[str, Any]) -> str:
    """`14`, `14+` for what was billed with request 14, `12-15` for a step of several requests."""
    first, last = step["turnIndex"], step["lastTurnIndex"]
    return f"{first}{'+' * step['beside']}" if first == last else f"{first}-{last}"


def calls_of(step: Mapping[str, Any]) -> str:
    """`prompt, Read src/app.py, Bash npm test (3 times, failed)`."""
    from burnctl.render import misses
    from burnctl.render.flow_svg import call_name
    from burnctl.render.names import short_model

    words = [f"cache miss ({misses.words(step['miss'])})"] if step["miss"] else []
    words += ["prompt"] if step["asked"] else []
    words += [call_name(call) for call in step["calls"][:_CALLS]]
    if len(step["calls"]) > _CALLS:
        words.append(f"{len(step['calls']) - _CALLS} more")
    if step["beside"]:
        words.append(f"{short_model(step['model'])}, billed with request {step['turnIndex']}")
    return ", ".join(words) or "answer"

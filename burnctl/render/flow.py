"""How a session went, in a terminal: a line for each turn, with its cost, its context and its calls."""

from __future__ import annotations

from burnctl.render import misses
from burnctl.render.caveats import price_caveats
from burnctl.render.chart import bar
from burnctl.render.names import short_id, short_model
from burnctl.render.numbers import counted, money, number
from burnctl.render.paragraphs import wrapped
from burnctl.render.text import clean, cut

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from burnctl.render.screen import Screen

_BAR = 10
_BAR_FROM = 60  # columns
_SHOWN_CALLS = 4
_LEAST_NUMBERS = 6


def drawn(answer: Mapping[str, Any], screen: Screen) -> str:
    """All of it, for a person."""
    return "\n".join(_Drawing(answer, screen).lines())


class _Drawing:
    def __init__(self, answer: Mapping[str, Any], screen: Screen) -> None:
        self._answer, self._screen = answer, screen
        steps = [step for lane in answer["lanes"] for step in lane["steps"]]
        self._dearest = max((step["costUsd"] or 0 for step in steps), default=0)
        self._largest = max((step["context"] for step in steps), default=0)
        self._numbers = max(_LEAST_NUMBERS, *(len(_numbers(step)) for step in steps)) if steps else _LEAST_NUMBERS
        self._bar = _BAR if screen.width >= _BAR_FROM else 0
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
        if answer["title"]:
            yield screen.paint(cut(clean(answer["title"]), screen.width), "bold")
        said = f"{short_id(answer['sessionId'])} · {counted(totals['turns'], 'turn')} · {priced(totals['costUsd'])}"
        yield screen.paint(cut(clean(said), screen.width), "dim")
        yield ""
        heads = f"{'turn':>{self._numbers}} {'cost':>8}  {'':{self._bar}} context"
        yield screen.paint(cut(heads, screen.width), "bold")
        for n in self._roots:
            yield from self._lane(n, "", named=n > 0)
        if answer["moreLanes"]:
            more = answer["moreLanes"]
            yield screen.paint(f"and {counted(more['count'], 'more subagent')} for {money(more['costUsd'])}", "dim")
        for note in price_caveats(answer):
            yield from ("", *wrapped(clean(note), screen.width))

    def _lane(self, n: int, indent: str, *, named: bool) -> Iterator[str]:
        lane = self._answer["lanes"][n]
        if named:
            kind = clean(lane["type"] or "subagent")
            who = clean(short_id(lane["railId"] if lane["railId"] != "main" else lane["sessionId"]))
            cost = f", {money(lane['costUsd'])}" if lane["costUsd"] is not None else ""
            told = f"{indent}└ {kind} {who}: {counted(lane['turns'], 'turn')}{cost}"
            yield self._screen.paint(cut(told, self._screen.width), "cyan")
        for step in lane["steps"]:
            yield from self._step(step, indent + ("  " if named else ""))
            for turn in range(step["turnIndex"], step["lastTurnIndex"] + 1):
                for below in self._below.pop((n, turn), ()):  # several steps may have the turn
                    yield from self._lane(below, indent + "      ", named=True)

    def _step(self, step: Mapping[str, Any], indent: str) -> Iterator[str]:
        if step["began"]:
            yield self._mark(indent, "the context began anew")
        elif step["goesOnFrom"] is not None:
            yield self._mark(indent, f"back to turn {step['goesOnFrom']}")
        share = bar(step["costUsd"] or 0, self._dearest, self._bar)
        if not self._dearest:  # nothing has a price
            share = bar(step["context"], self._largest, self._bar)
        share = share[: self._bar]
        left = f"{indent}{_numbers(step):>{self._numbers}} {money(step['costUsd']):>8}  "
        context = f" {number(step['context']):>6}  "
        room = max(self._screen.width - len(left) - self._bar - len(context), 4)
        told = cut(clean(_calls(step)), room)
        style = "red" if any(call["isError"] for call in step["calls"]) else ""
        paid = "yellow" if step["miss"] else "cyan"
        yield (left + self._screen.paint(share, paid) + context + self._screen.paint(told, style)).rstrip()

    def _mark(self, indent: str, told: str) -> str:
        said = cut(f"{indent}{'':>{self._numbers}} ── {told} ──", self._screen.width)
        return self._screen.paint(said, "magenta")


def _numbers(step: Mapping[str, Any]) -> str:
    first, last = step["turnIndex"], step["lastTurnIndex"]
    return f"{first}{'+' * step['beside']}" if first == last else f"{first}-{last}"


def priced(cost: float | None) -> str:
    """`$0.56 at API prices`."""
    return f"{money(cost)} at API prices" if cost is not None else "without a price"


def _calls(step: Mapping[str, Any]) -> str:
    said = [f"cache missed ({misses.words(step['miss'])})"] if step["miss"] else []
    said += ["prompt"] if step["asked"] else []
    said += [called(call) for call in step["calls"][:_SHOWN_CALLS]]
    if len(step["calls"]) > _SHOWN_CALLS:
        said.append(f"{len(step['calls']) - _SHOWN_CALLS} more")
    if step["beside"]:
        said.append(f"{short_model(step['model'])}, billed beside turn {step['turnIndex']}")
    return ", ".join(said) or short_model(step["model"]) + " answers"


def called(call: Mapping[str, Any]) -> str:
    """`Read src/app.py`, `Bash npm test (3 times, failed)`."""
    about = [f"{call['times']:,} times"] if call["times"] > 1 else []
    about += ["failed"] if call["isError"] else []
    named = f"{call['tool']} {call['target'] or ''}".strip()
    return f"{named} ({', '.join(about)})" if about else named

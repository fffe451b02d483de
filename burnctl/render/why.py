"""How a bill reads when it is explained: a bar of what was paid as what, a sentence for each cause, the total."""

from __future__ import annotations

from burnctl.render import misses
from burnctl.render.caveats import API_PRICES, caveats, turns_are
from burnctl.render.names import short_id, short_model
from burnctl.render.numbers import clock, counted, day, money, number, percent, roughly
from burnctl.render.paragraphs import dimmed, wrapped
from burnctl.render.text import clean, cut, width_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from burnctl.render.screen import Screen

_PARTS = {
    "fresh": ("fresh input", "red", "█"),
    "write": ("cache writes", "yellow", "▓"),
    "read": ("cache reads", "cyan", "▒"),
    "output": ("output", "magenta", "░"),
    "search": ("searches", "blue", "▞"),
}
_COST, _SHARE = 9, 7
_MARGIN = _COST + _SHARE + 2
_LEAST_ROOM = 16
_HANGING = "  "
_MUCH = 100  # tokens: fewer explain no cost
_MOST = 0.5  # of a bill: small causes that make up more say little one by one


def shown(answer: Mapping[str, Any], screen: Screen) -> str:
    """All of it, for a person."""
    drawing = _Drawing(answer, screen)
    parts = drawing.of_turn() if "turn" in answer else drawing.of_session()
    return "\n".join(parts)


class _Drawing:
    def __init__(self, answer: Mapping[str, Any], screen: Screen) -> None:
        self._answer, self._screen = answer, screen
        self._room = max(screen.width - _MARGIN, _LEAST_ROOM)

    def of_session(self) -> Iterator[str]:
        answer, totals = self._answer, self._answer["totals"]
        turns = counted(totals["turns"], "turn")
        below = counted(answer["agents"], "subagent") if answer["agents"] else ""
        models = ", ".join(short_model(model) for model in answer["models"][:3])
        cost = totals["costUsd"]
        paid = (
            f"{money(cost)} for {turns}" if cost is not None else f"{turns}{' without a price' * bool(totals['turns'])}"
        )
        yield from self._heading(paid, below, models)
        if not totals["turns"] and not totals["emptyTurns"]:
            yield "No turn of it falls into this time." if answer["filters"] else "No turn of it was billed."
            return
        yield from self._bar(answer["parts"])
        yield ""
        yield from self._causes(answer["causes"])
        yield self._line(cost, 1.0 if cost is not None else None, "total", "bold")
        yield from self._notes()

    def of_turn(self) -> Iterator[str]:
        answer, turn, requests = self._answer, self._answer["turn"], self._answer["requests"]
        rail = f" of subagent {turn['railId']}" if turn["railId"] != "main" else ""
        cost = answer["totals"]["costUsd"]
        paid = f": {money(cost)}" if cost is not None else " without a price"
        about = _about(requests[0]) if len(requests) == 1 else (f"{len(requests)} requests",)
        when = f"{day(turn['ts'])} {clock(turn['ts'])}"
        yield from self._heading(f"turn {turn['turnIndex']}{rail}{paid}", *about, when)
        for n, request in enumerate(requests):
            yield ""
            yield from self._request(request, n) if len(requests) > 1 else ()
            yield from self._parts(row for row in answer["causes"] if row.get("request") == n)
        yield from self._parts(row for row in answer["causes"] if "request" not in row)
        yield self._line(cost, 1.0 if cost is not None else None, "total", "bold")
        for again in filter(None, (request["miss"] for request in requests)):
            yield ""
            tokens = roughly(sum(again["usage"].values()), "token")
            yield from self._told(f"{tokens} that had been there before were paid for again: "
                                  f"{misses.sentence(again['reason'])}. "
                                  f"They cost {money(again['costUsd'])}.")  # fmt: skip
        yield from self._notes()

    def _parts(self, rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
        for row in rows:
            yield from self._row(row, _in_one_turn(row), "")

    def _request(self, request: Mapping[str, Any], n: int) -> Iterator[str]:
        """The heading of one of several requests that bear the same number."""
        paid = [money(request["costUsd"])] if request["costUsd"] is not None else []
        said = ["billed beside it" if n else "the response", *paid, *_about(request)]
        for line in _beside(said, self._screen.width):
            yield self._screen.paint(line, "cyan")

    def _heading(self, what: str, *about: str) -> Iterator[str]:
        answer = self._answer
        if answer["title"]:
            yield self._screen.paint(cut(clean(answer["title"]), self._screen.width), "bold")
        said = [short_id(answer["sessionId"]), what, *about]
        for line in _beside(filter(None, said), self._screen.width):
            yield self._screen.paint(line, "dim")

    def _bar(self, parts: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
        """One bar for the whole bill, and below it what each piece of it stands for."""
        whole = sum(part["costUsd"] or 0 for part in parts.values())
        by_tokens = not whole  # nothing has a price
        amounts = {name: (part["tokens"] if by_tokens else part["costUsd"] or 0) for name, part in parts.items()}
        whole = sum(amounts.values())
        if not whole:
            return
        yield ""
        cells = _cells([amounts[name] / whole for name in amounts], min(self._screen.width, 100))
        drawn = zip(amounts, cells, strict=True)
        yield "".join(self._screen.paint(_PARTS[name][2] * wide, _PARTS[name][1]) for name, wide in drawn)
        legend = []
        for name, part in parts.items():
            if not part["tokens"] and not part.get("searches"):
                continue
            title, style, sign = _PARTS[name]
            tokens = f"{part['searches']:,}" if "searches" in part else number(part["tokens"])
            paid = "" if by_tokens else f" {money(part['costUsd'])}"
            legend.append((f"{sign} {title}{paid} ({tokens})", style))
        yield from _flowed(legend, self._screen)

    def _causes(self, rows: Sequence[Mapping[str, Any]], indent: str = "") -> Iterator[str]:
        for row in rows:
            yield from self._row(row, _sentence(row), indent)
            for agent in row.get("agents", ()):
                yield from self._agent(agent, indent + "  ")

    def _agent(self, agent: Mapping[str, Any], indent: str) -> Iterator[str]:
        kind = agent["type"] or "subagent"
        named = (
            f"└ {clean(kind)} {clean(short_id(agent['railId'] if agent['railId'] != 'main' else agent['sessionId']))}"
        )
        told = f"{named}: {counted(agent['turns'], 'turn')}"
        yield from self._written(agent, told, indent, "cyan")
        if agent.get("causes"):
            yield from self._causes(agent["causes"], indent + "  ")

    def _row(self, row: Mapping[str, Any], sentence: str, indent: str) -> Iterator[str]:
        """The money on the left, the sentence beside it, in as many lines as it takes."""
        style = "red" if row.get("isError") else "dim" if row["kind"] == "smaller" else ""
        yield from self._written(row, sentence, indent, style)

    def _written(self, row: Mapping[str, Any], sentence: str, indent: str, style: str) -> Iterator[str]:
        indent = indent[: max(self._room - _LEAST_ROOM, 0)]
        first, *more = wrapped(clean(sentence), self._room - len(indent), len(_HANGING))
        yield self._line(row["costUsd"], row["share"], indent + first, style)
        for line in more:
            yield f"{'':{_MARGIN}}{indent}{_HANGING}{self._screen.paint(line, style)}"

    def _line(self, cost: float | None, share: float | None, text: str, style: str) -> str:
        left = f"{money(cost):>{_COST}}{percent(share) if share is not None else '':>{_SHARE}}"
        return f"{self._screen.paint(left, 'bold' if style == 'bold' else 'yellow')}  {self._screen.paint(text, style)}"

    def _notes(self) -> Iterator[str]:
        answer = self._answer
        open_turns, notes = answer["totals"].get("openTurns"), []
        small = any(row["kind"] == "smaller" and (row["share"] or 0) > _MOST for row in answer["causes"])
        if small and "turn" not in answer:
            session = short_id(answer["sessionId"])
            notes.append(f"Added up by tool, file or command: burnctl hotspots --session {session} --by tool")
        if open_turns:
            notes.append(f"{turns_are(open_turns)} still open and may yet use more.")
        yield ""
        for note in notes + caveats(answer):
            yield from self._told(note)
        yield dimmed(API_PRICES, self._screen)

    def _told(self, note: str) -> list[str]:
        return wrapped(clean(note), self._screen.width)


def _beside(facts: Iterable[str], room: int) -> Iterator[str]:
    """Facts with dots between them, in as many lines as it takes, broken between facts where they fit at all."""
    held = ""
    for fact in map(clean, facts):
        more = f"{held} · {fact}" if held else fact
        if held and width_of(more) > room:
            yield from wrapped(held, room)
            more = fact
        held = more
    yield from wrapped(held, room)


def _about(request: Mapping[str, Any]) -> tuple[str, str]:
    return f"{roughly(request['context'], 'token')} of context", short_model(request["model"])


def _sentence(row: Mapping[str, Any]) -> str:
    """`Read src/app.py (turn 14): 8.2k tokens entered, rode 23 turns`."""
    if row["kind"] in ("smaller", "subagent"):
        return str(row["label"])
    named = _named(row)
    usage = row.get("own", row)["usage"]  # what its agents used is told below it
    told = []
    if row["entered"]:
        told.append(f"{roughly(row['entered'], 'token')} entered")
    elif row["size"]:
        told.append(f"{roughly(row['size'], 'token')} from before")
    spoken = usage["output"] + usage["reasoning"]
    if told and spoken > max(2 * row["entered"], _MUCH):  # more than stays: then that is what it cost
        told.append(f"{number(spoken)} said")
    if row["rides"]:
        told.append(_rode(row))
    if not told:
        told.append(roughly(sum(usage.values()), "token"))
    if row.get("searches"):
        told.append(_searches(row["searches"]))
    return f"{named}: {', '.join(told)}"


def _rode(row: Mapping[str, Any]) -> str:
    """What has no turn of its own came in piece by piece, and no piece rode longer than this."""
    up_to = "up to " if row["kind"] == "unexplained" else ""
    rode = f"rode {up_to}{counted(row['rides'], 'turn')}"
    again = row["reentries"]
    if not again:
        return rode
    which = "" if row["rides"] == 1 else "each " if again == row["rides"] else f"{again:,} of them "
    return f"{rode}, {which}paid in full again"


def _searches(count: int) -> str:
    return f"{count:,} web {'search' if count == 1 else 'searches'}"


def _named(row: Mapping[str, Any]) -> str:
    failed = ", failed" if row.get("isError") else ""
    turn = f" (turn {row['turnIndex']}{failed})" if row["kind"] == "call" and "turnIndex" in row else ""
    quote = f" “{row['quote']}”" if row.get("quote") else ""
    return f"{row['label']}{turn}{quote}"


def _in_one_turn(row: Mapping[str, Any]) -> str:
    """What stood there, and how it was paid for."""
    usage = row["usage"]
    paid = (
        (usage["cacheRead"], "read from the cache"),
        (usage["cacheCreate5m"] + usage["cacheCreate1h"], "written to the cache"),
        (usage["input"], "fresh"),
        (usage["output"] + usage["reasoning"], "said"),
    )
    told = [f"{number(tokens)} {how}" for tokens, how in paid if tokens]
    if row.get("searches"):
        told.append(_searches(row["searches"]))
    named = row["label"] if row["kind"] == "smaller" else _named(row)
    return f"{named}: {', '.join(told) or 'nothing'}"


def _cells(shares: Sequence[float], width: int) -> list[int]:
    """Whole cells that fill the width; what is there at all has one."""
    ends = [round(sum(shares[: n + 1]) * width) for n in range(len(shares))]
    cells = [end - begin for begin, end in zip([0, *ends], ends, strict=False)]
    for n, share in enumerate(shares):
        if share > 0 and cells[n] == 0:
            cells[cells.index(max(cells))] -= 1
            cells[n] = 1
    return cells


def _flowed(words: Sequence[tuple[str, str]], screen: Screen) -> Iterator[str]:
    """Words with their styles, as many in a line as fit."""
    line, used = "", 0
    for text, style in words:
        wide = width_of(text)
        if used and used + 3 + wide > screen.width:
            yield line
            line, used = "", 0
        line += (" " * 3 if used else "") + screen.paint(text, style)
        used += (3 if used else 0) + wide
    if used:
        yield line

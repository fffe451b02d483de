"""A session as a Mermaid flowchart: what a person asked, the turns that came of it, the subagents they started."""

from __future__ import annotations

from burnctl.render import misses
from burnctl.render.names import short_id
from burnctl.render.numbers import counted, money, number
from burnctl.render.text import clean, cut

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

_MOST_NODES = 120
_ENTITIES = {"#": "#35;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "&": "#amp;", "`": "#96;", "|": "#124;", ";": "#59;"}


def drawn(answer: Mapping[str, Any]) -> str:
    """The diagram's text. Whatever a log holds is only ever text in a label."""
    return "\n".join(_lines(answer))


def _lines(answer: Mapping[str, Any]) -> Iterator[str]:
    totals = answer["totals"]
    title = answer["title"] or short_id(answer["sessionId"])
    yield "flowchart TD"
    yield f'  s["{_label(title)}<br/>{counted(totals["turns"], "turn")}, {_money(totals["costUsd"])}"]'
    left = _MOST_NODES
    for n, lane in enumerate(answer["lanes"]):
        groups = _groups(lane["steps"])[: max(left, 0)]
        left -= len(groups)
        if not groups:
            continue
        yield from _lane(n, lane, groups)
        yield f"  {_start(n, lane, answer['lanes'])} --> n{n}_0"
    if answer["moreLanes"]:
        more = answer["moreLanes"]
        yield f'  s -.-> more["{counted(more["count"], "more subagent")}<br/>{_money(more["costUsd"])}"]'


def _lane(n: int, lane: Mapping[str, Any], groups: Sequence[Sequence[Mapping[str, Any]]]) -> Iterator[str]:
    kind = lane["type"] or ("main" if n == 0 else "subagent")
    who = "" if n == 0 else f" {short_id(lane['railId'] if lane['railId'] != 'main' else lane['sessionId'])}"
    yield f'  subgraph l{n}["{_label(kind + who)}: {counted(lane["turns"], "turn")}, {_money(lane["costUsd"])}"]'
    for at, steps in enumerate(groups):
        yield f'    n{n}_{at}["{_told(steps)}"]'
        if at:
            yield f"    n{n}_{at - 1} --> n{n}_{at}"
    yield "  end"


def _groups(steps: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Turns up to the next prompt, or up to where the context began anew."""
    groups: list[list[Mapping[str, Any]]] = []
    for step in steps:
        if not groups or step["asked"] or step["began"]:
            groups.append([])
        groups[-1].append(step)
    return groups


def _start(n: int, lane: Mapping[str, Any], lanes: Sequence[Mapping[str, Any]]) -> str:
    by = lane["startedBy"]
    if by is None or by["lane"] >= n:
        return "s"
    for at, steps in enumerate(_groups(lanes[by["lane"]]["steps"])):
        if by["turnIndex"] <= steps[-1]["lastTurnIndex"]:
            return f"n{by['lane']}_{at}" if at < _MOST_NODES else "s"
    return "s"


def _told(steps: Sequence[Mapping[str, Any]]) -> str:
    first, last = steps[0]["turnIndex"], steps[-1]["lastTurnIndex"]
    turns = f"turn {first}" if first == last else f"turns {first}-{last}"
    known = [step["costUsd"] for step in steps if step["costUsd"] is not None]
    calls: dict[str, int] = {}
    for step in steps:
        for call in step["calls"]:
            calls[call["tool"]] = calls.get(call["tool"], 0) + call["times"]
    named = [f"{tool} ({times})" for tool, times in sorted(calls.items(), key=lambda one: -one[1])]
    context = f"{number(max(step['context'] for step in steps))} context"
    begins = "the context began anew<br/>" if steps[0]["began"] else ""
    lines = [f"{turns}: {_money(sum(known) if known else None)}", context]
    missed = dict.fromkeys(misses.words(step["miss"]) for step in steps if step["miss"])
    lines += [_label(f"cache missed ({', '.join(missed)})")] if missed else []
    lines += [_label(", ".join(named[:6]))] if named else []
    return begins + "<br/>".join(lines)


def _money(usd: float | None) -> str:
    return _label(money(usd))


def _label(text: str) -> str:
    plain = cut(clean(text), 80)
    return "".join(_ENTITIES.get(char, char) for char in plain)

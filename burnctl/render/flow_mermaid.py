"""Draws a session as a Mermaid flowchart: its requests, their cost, where it went back, the subagents it started.

A long session has one node for all requests of a prompt, because more nodes cannot be read.
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

    _Node = list[Mapping[str, Any]]

_MOST_NODES = 120
_ENTITIES = {"#": "#35;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "&": "#amp;", "`": "#96;", "|": "#124;", ";": "#59;"}


def drawn(answer: Mapping[str, Any]) -> str:
    """The diagram's text. Whatever a log holds is only ever text in a label."""
    return "\n".join(_lines(answer))


def _lines(answer: Mapping[str, Any]) -> Iterator[str]:
    totals = answer["totals"]
    title = answer["title"] or short_id(answer["sessionId"])
    yield "flowchart TD"
    yield f'  s["{_label(title)}<br/>{counted(totals["turns"], "request")}, {_money(totals["costUsd"])}"]'
    lanes = list(_nodes(answer["lanes"]))
    for n, (lane, nodes) in enumerate(zip(answer["lanes"], lanes, strict=True)):
        if nodes:
            yield from _lane(n, lane, nodes)
            yield f"  {_start(n, lane, lanes)} --> n{n}_0"
    if answer["moreLanes"]:
        more = answer["moreLanes"]
        yield f'  s -.-> more["{counted(more["count"], "more subagent")}<br/>{_money(more["costUsd"])}"]'


def _nodes(lanes: Sequence[Mapping[str, Any]]) -> Iterator[Sequence[_Node]]:
    """The steps of each lane by node."""
    each = sum(len(lane["steps"]) for lane in lanes) <= _MOST_NODES
    left = _MOST_NODES
    for lane in lanes:
        nodes = [[step] for step in lane["steps"]] if each else _groups(lane["steps"])[:left]
        left -= len(nodes)
        yield nodes


def _lane(n: int, lane: Mapping[str, Any], nodes: Sequence[_Node]) -> Iterator[str]:
    kind = lane["type"] or ("main" if n == 0 else "subagent")
    who = "" if n == 0 else f" {short_id(lane['railId'] if lane['railId'] != 'main' else lane['sessionId'])}"
    yield f'  subgraph l{n}["{_label(kind + who)}: {counted(lane["turns"], "request")}, {_money(lane["costUsd"])}"]'
    for at, steps in enumerate(nodes):
        yield f'    n{n}_{at}["{_description(steps)}"]'
        back = steps[0]["goesOnFrom"]
        before = at - 1 if back is None else min(_place(nodes, back) or 0, at - 1)
        if at:
            yield f"    n{n}_{before} --> n{n}_{at}"
    yield "  end"


def _place(nodes: Sequence[_Node], turn: int) -> int | None:
    """The first node that has this turn."""
    return next((at for at, steps in enumerate(nodes) if turn <= steps[-1]["lastTurnIndex"]), None)


def _groups(steps: Sequence[Mapping[str, Any]]) -> list[_Node]:
    """Turns up to the next prompt, or up to where a new context begins or went back."""
    groups: list[_Node] = []
    for step in steps:
        if not groups or step["asked"] or step["began"] or step["goesOnFrom"] is not None:
            groups.append([])
        groups[-1].append(step)
    return groups


def _start(n: int, lane: Mapping[str, Any], lanes: Sequence[Sequence[_Node]]) -> str:
    by = lane["startedBy"]
    at = _place(lanes[by["lane"]], by["turnIndex"]) if by is not None and by["lane"] < n else None
    return f"n{by['lane']}_{at}" if by is not None and at is not None else "s"


def _description(steps: Sequence[Mapping[str, Any]]) -> str:
    first, last = steps[0]["turnIndex"], steps[-1]["lastTurnIndex"]
    request = f"billed with request {first}" if steps[0]["beside"] else f"request {first}"
    requests = request if first == last else f"requests {first}-{last}"
    known = [step["costUsd"] for step in steps if step["costUsd"] is not None]
    calls: dict[str, int] = {}
    for step in steps:
        for call in step["calls"]:
            calls[call["tool"]] = calls.get(call["tool"], 0) + call["times"]
    often = sorted(calls.items(), key=lambda one: -one[1])
    named = [f"{tool} ({times})" if times > 1 else tool for tool, times in often]
    context = f"{number(max(step['context'] for step in steps))} context"
    begins = "a new context begins<br/>" if steps[0]["began"] else ""
    lines = [f"{requests}: {_money(sum(known) if known else None)}", context]
    missed = dict.fromkeys(misses.words(step["miss"]) for step in steps if step["miss"])
    lines += [_label(f"cache miss ({', '.join(missed)})")] if missed else []
    lines += [_label(", ".join(named[:6]))] if named else []
    return begins + "<br/>".join(lines)


def _money(usd: float | None) -> str:
    return _label(money(usd))


def _label(text: str) -> str:
    plain = cut(clean(text), 80)
    return "".join(_ENTITIES.get(char, char) for char in plain)

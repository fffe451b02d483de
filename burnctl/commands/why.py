"""`burnctl why`: what a session, or one of its requests, was spent on."""

from __future__ import annotations

from burnctl import flags, session_choice
from burnctl.daemon import reach
from burnctl.errors import UsageError
from burnctl.output import present
from burnctl.render.names import GROUP_NAMES, enough_of_id, last_name, miss_sentence, remedy, short_id, short_model
from burnctl.render.notes import add_caveats
from burnctl.render.numbers import bar, clock, count, counted, date, dates, exact_money, money, number, percent, roughly
from burnctl.render.tables import Column, table, weight_style
from burnctl.render.text import clean, cut, labelled, width_of, wrap
from burnd.contract import Params, param
from burnd.contract.reports import MOST_STEPS, Filters, FlowParams, HotspotsParams, WhyParams

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from burnctl.render.screen import Screen

HELP = (
    "explains what a session cost: a few groups that add up to the bill, then the most expensive causes with the "
    "tokens each added to the context and the number of requests that sent them again. A call that started a subagent "
    "includes what the subagent cost; --tree lists it. --by opens the bill by file, command, request or kind, and "
    "--turn shows the context of one request"
)
EXAMPLES = (
    "burnctl why",
    "burnctl why --costliest",
    "burnctl why scheduler --by file",
    "burnctl why 0f9c1d2e --turn 12",
)
_CAUSES, _CAUSES_OF_A_TREE, _ROWS = 10, 8, 20
_GROUPS = 9
_MISSES = 5
_WITH_TOOLS = ("files", "shell", "edits", "web", "mcp")
_KIND_NAMES = {
    "prefix": "system prompt, tools, memory files",
    "inherited": "history from before this session",
    "unexplained": "not found in the log",
    "prompt": "prompt",
    "answer": "answer",
    "thinking": "thinking",
    "reminder": "text added by the harness",
    "attachment": "attached files",
    "summary": "compaction summary",
    "call": "a call that is not in the log",
}
_PARTS = {
    "read": "cache reads",
    "write": "cache writes",
    "output": "output",
    "fresh": "uncached input",
    "search": "web searches",
}
_BAR = 30
_NARROW, _WIDE = 60, 110  # columns: too few for details, enough for whole sentences
_MUCH = 100  # fewer tokens do not explain a cost


class WhyFlags(Params):
    by: str | None = param(default=None, help="list the bill by", choices=("file", "command", "turn", "kind"))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    session_choice.add_session(parser)
    flags.add(parser, WhyFlags)
    flags.add(parser, WhyParams, skip=("session",), usual={"limit": _CAUSES})
    flags.report(parser)


def run(options: argparse.Namespace) -> int:
    if options.rail is not None and options.turn is None:
        raise UsageError("--rail needs --turn", "add --turn N, or list all subagents with --tree")
    if options.turn is not None and (options.tree or options.by or options.since or options.until):
        raise UsageError("--turn explains one request", "leave out --tree, --by, --since and --until")
    client = reach(options, causes=options.by in ("file", "command"))
    session = session_choice.chosen_session(client, options)
    if options.by in ("file", "command"):
        limit = options.limit or (None if options.json else _ROWS)
        period = {name: value for name, value in flags.given(options, Filters).items() if name != "session"}
        answer = client.ask(HotspotsParams, {**period, "by": options.by, "session": session, "limit": limit})
        about = {} if options.json else client.ask(WhyParams, {**period, "session": session, "limit": 1})
        return present(options, answer, lambda found, screen: draw_rows(found, about, screen))
    if options.by == "turn":
        answer = client.ask(FlowParams, {"session": session, "limit": MOST_STEPS if options.json else None})
        title = {} if options.json else {"title": client.ask(WhyParams, {"session": session, "limit": 1})["title"]}
        most = options.limit or _ROWS
        return present(options, answer, lambda found, screen: draw_requests({**found, **title}, screen, most))
    few = _CAUSES_OF_A_TREE if options.tree else _CAUSES
    limit = options.limit or (None if options.json else few)
    answer = flags.ask(client, WhyParams, options, session=session, limit=limit)
    draw = draw_request if options.turn is not None else draw_kinds if options.by else draw_session
    return present(options, answer, draw)


def draw_session(answer: Mapping[str, Any], screen: Screen) -> str:
    lines = [*_title(answer, screen)]
    totals = answer["totals"]
    if not totals["turns"] and not totals["emptyTurns"]:
        nothing = "No request of it is in this period." if answer["filters"] else "No request of it was billed."
        return "\n".join([*lines, "", nothing])
    lines += ["", group_table(answer["groups"], totals, screen, answer["agents"]), ""]
    causes = [row for row in answer["causes"] if row["kind"] != "smaller"]
    is_all = len(causes) == len(answer["causes"])
    count = "ten" if len(causes) == _CAUSES else f"{len(causes):,}"
    tokens = ", with their tokens" if _is_short(screen) else ""
    lines.append(screen.paint(f"{'all causes' if is_all else f'the {count} most expensive causes'}{tokens}", "bold"))
    lines.append(_cause_table(causes, screen))
    lines += _misses(answer, screen)
    session = enough_of_id(answer)
    lines += ["", *labelled("how it was billed", _billed(answer["parts"]), screen)]
    lines += labelled("next", [f"burnctl waste --session {session}", f"burnctl flow {session}"], screen)
    if open_requests := totals.get("openTurns"):
        is_one = open_requests == 1
        screen.footnote(f"{open_requests:,} {'request is' if is_one else 'requests are'} still open and may cost more.")
    add_caveats(answer, screen)
    return "\n".join(lines)


def _misses(answer: Mapping[str, Any], screen: Screen) -> list[str]:
    """The cache misses by reason, and what the other lifetime of cache writes would have cost."""
    from burnctl.commands.waste import other_ttl

    misses = answer.get("misses", ())
    if not misses:
        return []
    rows = []
    for miss in misses[:_MISSES]:
        one = miss["requests"][0] if miss["count"] == 1 and miss["requests"] else {}
        where = f"request {one['turnIndex']}" if one else counted(miss["count"], "request")
        sentence = miss_sentence({**miss, **{name: one[name] for name in ("position", "effort") if name in one}})
        rows.append((money(miss["costUsd"]), sentence, (f"{where}, {miss['proof']}", "dim")))
    columns = (Column("", "right"), Column("", least=16), Column("", drop=1))
    lines = ["", screen.paint("cache misses, part of the above", "bold"), table(columns, rows, screen, header=False)]
    ttl_line = other_ttl(answer.get("cacheTtl"))
    return lines + ([screen.paint(line, "dim") for line in wrap(ttl_line, screen.room)] if ttl_line else [])


def draw_kinds(answer: Mapping[str, Any], screen: Screen) -> str:
    rows: list[tuple[object, ...]] = []
    for group in answer["groups"]:
        label, parts = _group_label(group, answer["agents"]), group["parts"]
        times = [counted(part["count"], part["kind"]) if part["kind"] in ("call", "subagent") else "" for part in parts]
        is_one = len(parts) == 1  # its figures are those of its group
        figures = (money(group["costUsd"]), "bold"), (percent(group["share"]), "bold")
        rows.append(((label, "bold"), *figures, (times[0] if is_one else "", "dim")))
        for part, often in zip(parts, times, strict=True) if not is_one else ():
            name = f"  {_KIND_NAMES.get(part['key'], part['key'])}"
            rows.append((name, money(part["costUsd"]), percent(part["share"]), (often, "dim")))
    columns = (
        Column("where it went", least=16),
        Column("cost", "right"),
        Column("share", "right"),
        Column("", "left", drop=1),
    )
    add_caveats(answer, screen)
    return "\n".join([*_title(answer, screen), "", table(columns, rows, screen)])


def draw_rows(answer: Mapping[str, Any], about: Mapping[str, Any], screen: Screen) -> str:
    """The files or commands of a session by cost, the rest in one line."""
    by, totals = answer["by"], answer["totals"]
    named_rows = [row for row in answer["rows"] if row["kind"] != "other"]
    others = [row for row in answer["rows"] if row["kind"] == "other"]
    rows = [
        (row["key"], money(row["costUsd"]), percent(row["share"]), count(row["calls"]), number(row["entered"]))
        for row in named_rows
    ]
    title = [*_title(about, screen), ""]
    if not rows:
        return "\n".join([*title, f"No {by} was used in this session."])
    if others:
        more = answer["moreRows"]
        label = f"everything else, with {more:,} more {by}s" if more else "everything else"
        cost, share = (_sum(row[name] for row in others) for name in ("costUsd", "share"))
        rows.append(((label, "dim"), money(cost), percent(share), "", ""))
    columns = (
        Column(by, least=16, where="start" if by == "file" else "end"),
        Column("cost", "right"),
        Column("share", "right"),
        Column("calls", "right", drop=1),
        Column("tokens", "right", drop=2),
    )
    add_caveats(answer, screen)
    return "\n".join([*title, table(columns, rows, screen, footer=("total", money(totals["costUsd"]), "", "", ""))])


def draw_requests(answer: Mapping[str, Any], screen: Screen, most: int) -> str:
    """The most expensive requests, or steps of several requests in a long session."""
    from burnctl.commands.flow import calls_of, step_numbers

    steps = [(lane, step) for lane in answer["lanes"] for step in lane["steps"]]
    steps.sort(key=lambda pair: -(pair[1]["costUsd"] or 0))
    whole = answer["totals"]["costUsd"]
    days = dates([step["ts"] for _, step in steps[:most]])
    rows = [
        (
            step_numbers(step) if lane["railId"] == "main" else f"{step_numbers(step)} of {lane['type'] or 'subagent'}",
            f"{day} {clock(step['ts'])}",
            money(step["costUsd"]),
            percent(step["costUsd"] / whole if whole and step["costUsd"] is not None else None),
            number(step["context"]),
            (calls_of(step), "yellow" if step["miss"] else ""),
        )
        for (lane, step), day in zip(steps[:most], days, strict=True)
    ]
    columns = (
        Column("request", "right"),
        Column("time", drop=2),
        Column("cost", "right"),
        Column("share", "right"),
        Column("context", "right", drop=1),
        Column("what it did", least=20),
    )
    if len(steps) > most:
        screen.hint(f"the {most:,} most expensive of {len(steps):,}: --limit {len(steps)}")
    add_caveats(answer, screen)
    return "\n".join([*_title(answer, screen), "", table(columns, rows, screen)])


def draw_request(answer: Mapping[str, Any], screen: Screen) -> str:
    """The context of one request, or of the few with its number, and how it was paid."""
    turn, requests = answer["turn"], answer["requests"]
    rail = f" of subagent {turn['railId']}" if turn["railId"] != "main" else ""
    head = [f"request {turn['turnIndex']}{rail}", f"{date(turn['ts'])} {clock(turn['ts'])}"]
    lines = [*_title(answer, screen, head)]
    columns = (Column("cost", "right"), Column("", least=24), Column("how it was paid", least=16))
    for n, request in enumerate(requests):
        about = [f"{roughly(request['context'], 'token')} of context", short_model(request["model"])]
        if len(requests) > 1:
            about = ["the response" if not n else "billed with it", exact_money(request["costUsd"]), *about]
        lines += ["", screen.paint(" · ".join(about), "cyan")]
        causes = [row for row in answer["causes"] if row.get("request", 0 if len(requests) == 1 else -1) == n]
        lines.append(table(columns, [_paid_row(row) for row in causes], screen, header=False))
        if miss := request["miss"]:
            again = roughly(sum(miss["usage"].values()), "token")
            proof = f" ({miss['proof']})" if "proof" in miss else ""
            advice = remedy(miss.get("advice", ""))
            text = f"{again} were sent uncached again for {exact_money(miss['costUsd'])}: {miss_sentence(miss)}{proof}."
            lines += ["", screen.paragraph(f"{text} {advice[:1].upper()}{advice[1:]}".rstrip())]
    others = [row for row in answer["causes"] if "request" not in row] if len(requests) > 1 else []
    if others:
        lines.append(table(columns, [_paid_row(row) for row in others], screen, header=False))
    add_caveats(answer, screen)
    return "\n".join(lines)


def _paid_row(row: Mapping[str, Any]) -> tuple[object, ...]:
    usage = row["usage"]
    parts = (
        (usage["cacheRead"], "cache read"),
        (usage["cacheCreate5m"] + usage["cacheCreate1h"], "cache write"),
        (usage["input"], "uncached"),
        (usage["output"] + usage["reasoning"], "output"),
    )
    payments = [f"{number(tokens)} {how}" for tokens, how in parts if tokens]
    payments += [_searches(row["searches"])] if row.get("searches") else []
    style = "red" if row.get("isError") else "dim" if row["kind"] == "smaller" else ""
    return exact_money(row["costUsd"]), (cause_name(row, with_request=False), style), ", ".join(payments)


def _title(answer: Mapping[str, Any], screen: Screen, head: Sequence[str] = ()) -> Iterator[str]:
    """The title, project, models, requests and cost in one line, or a long title in its own."""
    totals = answer["totals"]
    facts = [*head] if head else [counted(totals["turns"], "request")]
    facts += [money(totals["costUsd"]) if totals["costUsd"] is not None else "no price"]
    models = [short_model(model) for model in answer.get("models", ())[:3]]
    project = last_name(answer["project"]) if answer["project"] else ""
    title = clean(answer["title"] or f"session {enough_of_id(answer)}")
    behind = " · ".join(map(clean, filter(None, [project, *models, *facts])))
    room = screen.width - width_of(behind) - 3
    if screen.is_pipe or width_of(title) <= room:
        yield f"{screen.paint(title, 'bold')} · {behind}"
        return
    yield screen.paint(cut(title, screen.width), "bold")
    yield from wrap(behind, screen.width)


def group_table(groups: Sequence[Mapping[str, Any]], totals: Mapping[str, Any], screen: Screen, agents: int = 0) -> str:
    is_priced = totals["costUsd"] is not None
    amounts = group_rows(groups, totals, agents)
    most, whole = max((amount for _, amount in amounts), default=0), sum(amount for _, amount in amounts)
    shares = whole_percents([amount for _, amount in amounts])
    rows = [
        (
            label,
            (money(amount) if is_priced else number(amount), weight_style(amount, most)),
            f"{share}%" if share else "<1%",
            (bar(amount, whole, _BAR).rstrip(), "cyan"),
        )
        for (label, amount), share in zip(amounts, shares, strict=True)
    ]
    columns = (
        Column("where it went", least=20),
        Column("cost" if is_priced else "tokens", "right"),
        Column("share", "right"),
        Column("", drop=1, least=6),
    )
    return table(columns, rows, screen)


def group_rows(
    groups: Sequence[Mapping[str, Any]], totals: Mapping[str, Any], agents: int = 0
) -> list[tuple[str, float]]:
    """At most nine groups with their dollars, or tokens if nothing has a price; the smallest are merged."""
    is_priced = totals["costUsd"] is not None
    amounts = [(group, (group["costUsd"] or 0) if is_priced else sum(group["usage"].values())) for group in groups]
    amounts = [pair for pair in amounts if pair[1] > 0]
    amounts.sort(key=lambda pair: (pair[0]["key"] == "rest", -pair[1]))
    rows = [(_group_label(group, agents), amount) for group, amount in amounts]
    if len(rows) > _GROUPS:
        rest = sum(amount for _, amount in rows[_GROUPS - 1 :])
        rows = [*rows[: _GROUPS - 1], (GROUP_NAMES["rest"], rest)]
    return rows


def whole_percents(amounts: Sequence[float]) -> list[int]:
    """Percentages without decimals that add up to 100."""
    whole = sum(amounts)
    if whole <= 0:
        return [0] * len(amounts)
    exact = [100 * amount / whole for amount in amounts]
    floors = [int(value) for value in exact]
    order = sorted(range(len(exact)), key=lambda n: floors[n] - exact[n])
    for n in order[: 100 - sum(floors)]:
        floors[n] += 1
    return floors


def _group_label(group: Mapping[str, Any], agents: int) -> str:
    """`file reads (Read, Grep, cat)`, `subagents (3)`."""
    key = str(group["key"])
    name = GROUP_NAMES.get(key, key)
    if key == "agents" and agents:
        return f"{name} ({agents:,})"
    if key not in _WITH_TOOLS:
        return name
    tools = list(dict.fromkeys(part["key"].removeprefix("mcp__").partition("__")[0] for part in group["parts"]))
    return f"{name} ({', '.join(tools[:3])}{', ...' if len(tools) > 3 else ''})"


def _is_short(screen: Screen) -> bool:
    return not screen.is_pipe and _NARROW <= screen.width < _WIDE


def _cause_table(rows: Sequence[Mapping[str, Any]], screen: Screen) -> str:
    is_short = _is_short(screen)
    lines = [
        (
            (money(row["costUsd"]), "bold" if (row["share"] or 0) >= 0.1 else ""),
            (f"{'  ' * depth}{cause_name(row)}", "red" if row.get("isError") else "cyan" if depth % 2 else ""),
            (_detail(row, is_short=is_short), "dim"),
        )
        for depth, row in _opened(rows, 0)
        if row["kind"] != "smaller"
    ]
    columns = (Column("", "right"), Column("", least=16), Column("", drop=int(screen.width < _NARROW)))
    return table(columns, lines, screen, header=False)


def _opened(rows: Iterable[Mapping[str, Any]], depth: int) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Calls, then the agents they started with their causes, in order."""
    for row in rows:
        yield depth, row
        for agent in row.get("agents", ()):
            if agent.get("causes"):
                yield depth + 1, agent | {"kind": "agent"}
                yield from _opened(agent["causes"], depth + 2)


def cause_name(row: Mapping[str, Any], *, with_request: bool = True) -> str:
    """`Read src/app.py (request 14)`, `prompt “Fix the tests” (request 3)`."""
    kind = row["kind"]
    if kind == "agent":
        return f"{row['type'] or 'subagent'} {short_id(row['railId'] if row['railId'] != 'main' else row['sessionId'])}"
    if kind in ("smaller", "subagent"):
        return str(row["label"])
    name = str(row["label"]) if kind == "call" else _KIND_NAMES.get(kind, str(row["label"]))
    quote = row.get("quote")
    if quote and kind == "call":
        # A quoted command begins with its own name; a quoted pattern is what the call was about.
        tool, target = row["tool"] or "", row["target"] or ""
        name = f"{tool} “{quote}”" if not target or quote.startswith(target.split(" ")[0]) else f"{name} “{quote}”"
    elif quote:
        name = f"{name} “{quote}”"
    marks = [f"request {row['turnIndex']}"] if with_request and "turnIndex" in row else []
    marks += ["failed"] if row.get("isError") else []
    if agents := row.get("agents"):
        marks.append(f"{len(agents)} subagents" if len(agents) > 1 else "a subagent")
    return f"{name} ({', '.join(marks)})" if marks else name


def _detail(row: Mapping[str, Any], *, is_short: bool) -> str:
    """`18.3k tokens, re-sent in 341 requests, 14 of them uncached`; shorter on a narrow screen."""
    if row["kind"] == "agent":
        return counted(row["turns"], "request")
    if row["kind"] == "subagent":
        return ""
    usage = row.get("own", row)["usage"]  # its agents have their own lines
    facts = []
    if row["entered"]:
        facts.append(roughly(row["entered"], "token"))
    elif row["size"]:
        facts.append(f"{roughly(row['size'], 'token')} from before")
    output = usage["output"] + usage["reasoning"]
    if facts and output > max(2 * row["entered"], _MUCH):  # more than stays in the context: that is what it cost
        facts.append(f"{number(output)} output")
    if rides := row["rides"]:
        most = "up to " if row["kind"] == "unexplained" else ""
        uncached = row["reentries"]
        facts.append(f"re-sent {most}{rides:,}\u00d7" if is_short else f"re-sent in {most}{counted(rides, 'request')}")
        if is_short and len(facts) == 2:
            facts = [f"{facts[0].removesuffix(' tokens')} {facts[1]}"]
        if uncached:
            whose = "" if is_short or rides == 1 else "all of them " if uncached == rides else f"{uncached:,} of them "
            facts.append(f"{uncached:,} uncached" if is_short else f"{whose}uncached")
    if not facts:
        facts.append(roughly(sum(usage.values()), "token"))
    if row.get("searches"):
        facts.append(_searches(row["searches"]))
    return ", ".join(facts)


def _searches(count: int) -> str:
    return f"{count:,} web {'search' if count == 1 else 'searches'}"


def _billed(parts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """`cache reads $13.61`, the most expensive first; tokens without prices."""
    used = [(name, part) for name, part in parts.items() if part["tokens"] or part.get("searches")]
    used.sort(key=lambda pair: (-(pair[1]["costUsd"] or 0), -pair[1]["tokens"]))
    return [
        f"{_PARTS[name]} {money(part['costUsd']) if part['costUsd'] is not None else roughly(part['tokens'], 'token')}"
        for name, part in used
    ]


def _sum(values: Iterable[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return sum(present) if present else None

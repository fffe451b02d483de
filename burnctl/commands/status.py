"""`burnctl status`: whether burnd records everything, what is wrong, what is stored."""

from __future__ import annotations

import os

from burnctl import flags
from burnctl.daemon import reach
from burnctl.output import as_json
from burnctl.progress import blocked
from burnctl.render.names import tilde
from burnctl.render.numbers import bar, count, counted, duration, money, percent, size
from burnctl.render.tables import Column, table
from burnctl.render.text import clean, flow, wrap
from burnd.paths import home_folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from burnctl.render.screen import Screen

    Answer = Mapping[str, Any]

HELP = (
    "shows whether burnd records everything, and what is wrong with what to do about it; each source and its lag, and "
    "what is stored"
)
EXAMPLES = ("burnctl status", "burnctl status --json | jq .degraded")
_STATE_STYLES = {"watching": "green", "polling": "green", "waiting": "yellow", "degraded": "bold red", "absent": "dim"}
_DAMAGED_SHOWN = 5
_BLOCKED = "blocked: "  # before the reason, in the details of a source


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.reading(parser)


def run(options: argparse.Namespace) -> int:
    client = reach(options)
    answer: dict[str, Any] = {**client.status()}
    if os.path.isdir(os.path.join(home_folder(), "push")):
        from burnctl.push.state import behind

        answer["pushes"] = behind(client)
    if options.json:
        return as_json(answer)
    from burnctl.render.screen import Screen

    screen = Screen.of(options, answer)
    screen.show(screen.page({}, drawn(answer, screen)))
    return 0


def drawn(answer: Answer, screen: Screen) -> str:
    problems = _problems(answer)
    parts = [_headline(answer, len(problems), screen)]
    if trouble := [*_trouble(answer, problems, screen)]:
        parts.append("\n".join(trouble))
    if sources := answer.get("sources"):
        parts.append(_sources(sources, {_wording(problem.reason) for problem in problems}, screen))
    if backfill := answer.get("backfill"):
        parts.append(_backfill(backfill, problems, screen))
    parts.append(_stored(answer, screen))
    if pushes := answer.get("pushes"):
        parts.append("\n".join(_push(one, screen) for one in pushes))
    if details := [_marked(" ", line, screen, "dim") for line in _details(answer)]:
        parts.append("\n".join(details))
    return "\n\n".join(parts)


def _headline(answer: Answer, problems: int, screen: Screen) -> str:
    daemon, backfill = answer.get("daemon") or {}, answer.get("backfill") or {}
    state, style = "recording", "green"
    if blocked(answer):
        state, style = "blocked", "bold red"
    elif (daemon.get("state") or "ready") != "ready":
        state, style = clean(str(daemon["state"])), "yellow"
    elif problems:
        state, style = counted(problems, "problem"), "bold yellow"
    elif backfill:
        state, style = "adding up totals" if backfill.get("totals") else "reading old logs", "yellow"
    uptime = daemon.get("uptimeMs")
    name = f"burnd {clean(daemon.get('version') or '?')}"
    facts = [
        f"{name}  {state}",
        f"pid {daemon.get('pid', '?')}",
        f"up {duration(uptime / 1000)}" if uptime is not None else "",
        tilde(clean(daemon.get("home") or "")),
    ]
    lines = flow([fact for fact in facts if fact], screen)
    lines[0] = lines[0].replace(name, screen.paint(name, "bold"), 1).replace(state, screen.paint(state, style), 1)
    return "\n".join(lines)


def _sources(sources: list[Answer], reasons: set[str], screen: Screen) -> str:
    columns = [
        Column("source", style="bold"),
        Column("state"),
        Column("detail", least=16),
        Column("files", "right", drop=1),
        Column("unread", "right", drop=2),
        Column("lag", "right"),
    ]
    rows = []
    for source in sources:
        state, detail = source.get("state"), str(source.get("detail") or "")
        parts = ["see above" if _wording(detail.removeprefix(_BLOCKED)) in reasons else detail]
        if restarts := source.get("restarts"):
            parts.append(f"restarted {counted(restarts, 'time')} after {source.get('lastFailure') or 'a failure'}")
        counts = source.get("counts") or {}
        parts += [f"{count(number)} {name}" for name, number in counts.items() if name != "lines" and number]
        rows.append(
            (
                source.get("name"),
                (state, _STATE_STYLES.get(str(state), "")),
                "; ".join(filter(None, parts)),
                count(source.get("files")),
                count(source.get("pending")),
                duration((source.get("lagMs") or 0) / 1000),
            )
        )
    return table(columns, rows, screen)


def _backfill(backfill: Answer, problems: Sequence[_Notice], screen: Screen) -> str:
    done, total, rate = backfill.get("done") or 0, backfill.get("total") or 0, backfill.get("bytesPerSecond") or 0
    if reason := backfill.get("blocked"):
        if any(_wording(problem.reason) in _wording(reason) for problem in problems):
            reason = "see above"
        return _marked(screen.paint("!", "bold red"), f"old logs cannot be read: {reason}", screen)
    if not total:
        return "old logs  looking for logs"
    facts = f"{percent(done / total)}, {size(done)} of {size(total)}"
    if rate:
        facts += f", {size(rate)}/s, {duration(max((total - done) / rate, 1))} left"
    wide = max(screen.width - len(facts) - len("old logs  ") - 2, 8)
    return f"old logs  {screen.paint(bar(done, total, min(wide, 40)), 'cyan')}  {facts}"


def _stored(answer: Answer, screen: Screen) -> str:
    ledger, content, index = (answer.get(name) or {} for name in ("ledger", "content", "index"))
    sessions = f", {counted(content['sidecars'], 'session')}" if content.get("sidecars") else ""
    waiting = (answer.get("causes") or {}).get("pending")
    pending = f", attribution pending for {counted(waiting, 'conversation')}" if waiting else ""
    requests, recorded = (
        f"? {noun}s" if ledger.get(name) is None else counted(ledger[name], noun)
        for name, noun in (("turns", "request"), ("sessions", "session"))
    )
    running = f" and {count(ledger['openTurns'])} running" if ledger.get("openTurns") else ""
    tags = f", {counted(ledger['stamps'], 'tag')}" if ledger.get("stamps") else ""
    rows = [
        ("ledger", f"{requests}{running}, {recorded}{tags}", size(ledger.get("bytes"))),
        ("content", f"{content.get('mode', '?')}{sessions}", size(content.get("bytes"))),
        ("index", f"{index.get('state', '?')}{pending}", size(index.get("bytes"))),
    ]
    if search := answer.get("search"):
        pending = f", {counted(search['pending'], 'session')} to index" if search.get("pending") else ""
        rows.append(("search", f"{search.get('state', '?')}{pending}", size(search.get("bytes"))))
    disk, prices = answer.get("disk") or {}, answer.get("prices") or {}
    if disk.get("free") is not None:
        rows.append(("disk", "free", size(disk["free"])))
    if prices.get("asOf"):
        own = f", {prices['own']:,} of your own" if prices.get("own") else ""
        rows.append(("prices", f"as of {prices.get('fetched') or prices['asOf']}{own}", ""))
    columns = [Column("", style="bold"), Column("", least=20), Column("", "right")]
    return table(columns, rows, screen, header=False)


def _push(push: Answer, screen: Screen) -> str:
    from burnctl.push.state import seconds_since

    age, left = seconds_since(push.get("at")), push.get("sessionsBehind")
    line = f"push to {clean(push['target'])}: " + ("never done" if age is None else f"{duration(age)} ago")
    if left:
        line += f", {counted(left, 'session')} changed since"
    if error := push.get("error"):
        return _marked("!", f"{line}; failed: {clean(error)}", screen, "yellow")
    return _marked(" ", line, screen, "dim")


def _trouble(answer: Answer, problems: Sequence[_Notice], screen: Screen) -> Iterator[str]:
    for problem in problems:
        text = ": ".join(filter(None, [", ".join(problem.sources), problem.reason]))
        yield _marked(screen.paint("!", "bold yellow"), text, screen)
        if problem.remedy:
            yield _marked(" ", f"→ {problem.remedy}", screen, "cyan")
    for budget in answer.get("budget") or ():
        if budget.get("crossed"):
            yield exceeded(budget, screen)
    if lost := (answer.get("lostLogs") or {}).get("sessions"):
        text = f"the logs of {counted(lost, 'session')} are gone, and no clean-up explains it"
        yield _marked(screen.paint("!", "bold yellow"), text, screen)
        yield _marked(" ", "→ burnctl sessions --gone lists them, burnctl restore writes one again", screen, "cyan")


class _Notice:
    """A reason, its remedy, and the sources that have it."""

    def __init__(self, reason: str, remedy: str) -> None:
        self.reason, self.remedy, self.sources = reason, remedy, list[str]()


def _problems(answer: Answer) -> list[_Notice]:
    """Each problem once, although sources may report it with different times."""
    names = {source.get("name") for source in answer.get("sources") or ()}
    problems: dict[str, _Notice] = {}
    for item in answer.get("degraded") or ():
        what, remedy = str(item.get("what") or ""), str(item.get("remedy") or "")
        name, _, reason = what.partition(": ")
        if name in names:
            reason = reason.removeprefix(_BLOCKED)
            problems.setdefault(_wording(reason), _Notice(reason, remedy)).sources.append(name)
        elif not any(remedy == one.remedy for one in problems.values()):  # else it is the cause of the ones above
            problems[what] = _Notice(what, remedy)
    return [*problems.values()]


def _wording(reason: str) -> str:
    return "".join(letter for letter in reason if not letter.isdigit() and letter != ",")


def exceeded(budget: Answer, screen: Screen) -> str:
    cost, limit = money(budget.get("spentUsd")), money(budget.get("limitUsd"))
    return _marked(
        screen.paint("!", "bold yellow"), f"the {budget.get('period')} budget is exceeded: {cost} of {limit}", screen
    )


def _details(answer: Answer) -> Iterator[str]:
    """Unusable lines of the ledger and of sources, and files that are skipped on purpose."""
    skipped = (answer.get("ledger") or {}).get("skipped") or {}
    lines = skipped.get("lines") or []
    for line in lines[:_DAMAGED_SHOWN]:
        where = _bytes(line.get("position", 0), line.get("length", 0))
        yield f"ledger.jsonl, {where}: {line.get('reason')} {line.get('kind') or ''}".rstrip()
    yield from _more(skipped.get("count", 0), len(lines))
    sources = answer.get("sources") or ()
    for source in sources:
        unused = source.get("unused") or {}
        lines = unused.get("lines") or []
        if [line.get("reason") != "unfinished" for line in lines] == [True]:  # the only one is shown above
            continue
        for line in lines[:_DAMAGED_SHOWN]:
            where = line.get("row") or _bytes(line.get("offset", 0), line.get("size", 0))
            yield f"{tilde(clean(line.get('path') or ''))}, {where}: {line.get('reason')}"
        yield from _more(unused.get("count", 0), len(lines))
    for source in sources:
        for item in source.get("leftAlone") or ():
            if item.get("isNormal") and item.get("paths"):
                more = f" (and {item['count'] - 1:,} more)" if item.get("count", 1) > 1 else ""
                yield f"{tilde(clean(item['paths'][0]))} is skipped: {item.get('why')}{more}"


def _bytes(begin: int, length: int) -> str:
    return f"bytes {begin:,} to {begin + length:,}"


def _more(total: int, listed: int) -> Iterator[str]:
    if (more := total - min(listed, _DAMAGED_SHOWN)) > 0:
        yield f"... and {more:,} more; burnctl status --json lists the first {listed}"


def _marked(mark: str, text: str, screen: Screen, style: str = "") -> str:
    lines = wrap(clean(text), max(screen.width - 2, 20))
    return "\n".join(f"{mark if n == 0 else ' '} {screen.paint(line, style)}" for n, line in enumerate(lines))

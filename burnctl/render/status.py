"""The answer of `status` as a page: the daemon, its sources, what is recorded, what is wrong and what to do."""

from __future__ import annotations

from burnctl.render.chart import bar
from burnctl.render.names import tilde
from burnctl.render.numbers import counted, duration, money, number, percent, size
from burnctl.render.paragraphs import wrapped
from burnctl.render.tables import Column, table
from burnctl.render.text import clean

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from burnctl.render.screen import Screen

    Answer = Mapping[str, Any]

_STATE_STYLES = {"watching": "green", "polling": "green", "waiting": "yellow", "degraded": "bold red", "absent": "dim"}
_DAMAGED_SHOWN = 5


def status_text(answer: Answer, screen: Screen) -> str:
    """Everything a person wants to know at a glance, and nothing twice."""
    parts = [_daemon(answer.get("daemon") or {}, screen)]
    if sources := answer.get("sources"):
        parts.append(_sources(sources, screen))
    if backfill := answer.get("backfill"):
        parts.append(_backfill(backfill, screen))
    parts.append(_kept(answer, screen))
    if trouble := [*_trouble(answer, screen)]:
        parts.append("\n".join(trouble))
    return "\n\n".join(parts)


def _daemon(daemon: Answer, screen: Screen) -> str:
    state = str(daemon.get("state") or "ready")
    style = "green" if state == "ready" else "yellow"
    uptime = daemon.get("uptimeMs")
    facts = [
        screen.paint(f"burnd {clean(daemon.get('version') or '?')}", "bold"),
        screen.paint(clean(state), style),
        f"pid {daemon.get('pid', '?')}",
        f"up {duration(uptime / 1000)}" if uptime is not None else "",
        screen.paint(tilde(clean(daemon.get("home") or "")), "dim"),
    ]
    return "  ".join(filter(None, facts))


def _sources(sources: list[Answer], screen: Screen) -> str:
    columns = [
        Column("source", style="bold"),
        Column("state"),
        Column("doing", least=16),
        Column("files", "right", drop=1),
        Column("waiting", "right", drop=2),
        Column("behind", "right"),
    ]
    rows = [
        (
            source.get("name"),
            (source.get("state"), _STATE_STYLES.get(str(source.get("state")), "")),
            _doing(source),
            number(source.get("files")),
            number(source.get("pending")),
            duration((source.get("lagMs") or 0) / 1000),
        )
        for source in sources
    ]
    return table(columns, rows, screen)


def _doing(source: Answer) -> str:
    """Its own words, how often it had to be started again, and what it met and could not use."""
    said = [str(source.get("detail") or "")]
    if restarts := source.get("restarts"):
        said.append(f"started again {restarts} times after {source.get('lastFailure') or 'a failure'}")
    counts = source.get("counts") or {}
    said += [f"{number(count)} {name}" for name, count in counts.items() if name != "lines" and count]
    return "; ".join(filter(None, said))


def _backfill(backfill: Answer, screen: Screen) -> str:
    done, total, rate = backfill.get("done") or 0, backfill.get("total") or 0, backfill.get("bytesPerSecond") or 0
    if not total:
        return f"old logs  {clean(backfill.get('blocked') or 'looking for what there is to read')}"
    facts = f"{percent(done / total if total else 0)}, {size(done)} of {size(total)}"
    if rate:
        facts += f", {size(rate)}/s, {duration(max((total - done) / rate, 1))} left"
    wide = max(screen.width - len(facts) - len("old logs  ") - 2, 8)
    return f"old logs  {screen.paint(bar(done, total, min(wide, 40)), 'cyan')}  {facts}"


def _kept(answer: Answer, screen: Screen) -> str:
    """What is on disk, a line each."""
    rows = [("ledger", _ledger(answer.get("ledger") or {}), size((answer.get("ledger") or {}).get("bytes")))]
    content, index = answer.get("content") or {}, answer.get("index") or {}
    kept = content.get("sidecars")
    sessions = f", {_counted(kept, 'session')} kept" if kept else ""
    rows.append(("content", f"{content.get('mode', '?')}{sessions}", size(content.get("bytes"))))
    waiting = (answer.get("causes") or {}).get("pending")
    behind = f", what {_counted(waiting, 'conversation')} cost is yet to be explained" if waiting else ""
    rows.append(("index", f"{index.get('state', '?')}{behind}", size(index.get("bytes"))))
    if search := answer.get("search"):
        later = f", {_counted(search['pending'], 'session')} yet to be taken in" if search.get("pending") else ""
        rows.append(("search", f"{search.get('state', '?')}{later}", size(search.get("bytes"))))
    disk, prices = answer.get("disk") or {}, answer.get("prices") or {}
    if disk.get("free") is not None:
        rows.append(("disk", "free", size(disk["free"])))
    if prices.get("asOf"):
        own = f", {prices['own']:,} of your own" if prices.get("own") else ""
        rows.append(("prices", f"as of {prices.get('fetched') or prices['asOf']}{own}", ""))
    columns = [Column("", style="bold"), Column("", least=20), Column("", "right")]
    return table(columns, rows, screen, header=False)


def _ledger(ledger: Answer) -> str:
    said = [_counted(ledger.get("turns"), "turn")]
    if ledger.get("openTurns"):
        said[0] += f" and {_count(ledger['openTurns'])} open"
    if ledger.get("sessions") is not None:
        said.append(_counted(ledger["sessions"], "session"))
    if ledger.get("stamps"):
        said.append(_counted(ledger["stamps"], "stamp"))
    return ", ".join(said)


def _count(count: int | None) -> str:
    return "?" if count is None else f"{count:,}"


def _counted(count: int | None, what: str) -> str:
    return f"? {what}s" if count is None else counted(count, what)


def _trouble(answer: Answer, screen: Screen) -> Iterator[str]:
    """What is not as it should be, each with its remedy; budgets that are crossed; damaged lines of the ledger."""
    for item in answer.get("degraded") or ():
        yield _wrapped(screen.paint("!", "bold yellow"), str(item.get("what") or ""), screen)
        if item.get("remedy"):
            yield _wrapped(" ", "→ " + str(item["remedy"]), screen, style="cyan")
    for line in (*_damaged(answer), *_unused(answer), *_left_alone(answer)):
        yield _wrapped(" ", line, screen, style="dim")
    for budget in answer.get("budget") or ():
        if budget.get("crossed"):
            yield crossed(budget, screen)


def crossed(budget: Answer, screen: Screen) -> str:
    """A budget that is crossed, with its mark."""
    spent, limit = money(budget.get("spentUsd")), money(budget.get("limitUsd"))
    said = f"the {budget.get('period')} budget is crossed: {spent} of {limit} at API prices"
    return _wrapped(screen.paint("!", "bold yellow"), said, screen)


def _damaged(answer: Answer) -> Iterator[str]:
    skipped = (answer.get("ledger") or {}).get("skipped") or {}
    lines = skipped.get("lines") or []
    for line in lines[:_DAMAGED_SHOWN]:
        where = _bytes(line.get("position", 0), line.get("length", 0))
        yield f"ledger.jsonl, {where}: {line.get('reason')} {line.get('kind') or ''}".rstrip()
    yield from _more(skipped.get("count", 0), len(lines))


def _unused(answer: Answer) -> Iterator[str]:
    """Lines of logs and rows of databases that could not be used, if there are more than the one shown above."""
    for source in answer.get("sources") or ():
        unused = source.get("unused") or {}
        lines = unused.get("lines") or []
        if [line.get("reason") != "unfinished" for line in lines] == [True]:
            continue
        for line in lines[:_DAMAGED_SHOWN]:
            where = line.get("row") or _bytes(line.get("offset", 0), line.get("size", 0))
            yield f"{tilde(clean(line.get('path') or ''))}, {where}: {line.get('reason')}"
        yield from _more(unused.get("count", 0), len(lines))


def _left_alone(answer: Answer) -> Iterator[str]:
    """What is not read, and need not be: what should be is said above."""
    for source in answer.get("sources") or ():
        for item in source.get("leftAlone") or ():
            if item.get("isNormal") and item.get("paths"):
                more = f" (and {item['count'] - 1:,} more)" if item.get("count", 1) > 1 else ""
                yield f"{tilde(clean(item['paths'][0]))} is left alone: {item.get('why')}{more}"


def _bytes(begin: int, size: int) -> str:
    return f"bytes {begin:,} to {begin + size:,}"


def _more(count: int, listed: int) -> Iterator[str]:
    if (more := count - min(listed, _DAMAGED_SHOWN)) > 0:
        yield f"... and {more:,} more; burnctl status --json lists the first {listed}"


def _wrapped(mark: str, text: str, screen: Screen, style: str = "") -> str:
    lines = wrapped(clean(text), max(screen.width - 2, 20))
    return "\n".join(f"{mark if n == 0 else ' '} {screen.paint(line, style)}" for n, line in enumerate(lines))

"""`burnctl waste`: avoidable spending, with evidence and advice."""

from __future__ import annotations

from burnctl import flags
from burnctl.commands.explain import KINDS
from burnctl.daemon import reach
from burnctl.errors import Failed
from burnctl.output import present
from burnctl.progress import ProgressLine
from burnctl.render.names import enough_of_id, harness_name, last_name, miss_sentence, miss_words, remedy, short_model
from burnctl.render.notes import add_caveats
from burnctl.render.numbers import counted, day_names, money, number, percent
from burnctl.render.tables import Column, table
from burnctl.render.text import cut, flow, wrap
from burnd.contract.reports import MOST_FINDINGS, Filters, WasteParams

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from burnctl.client import Client
    from burnctl.render.screen import Screen
    from burnd.contract.results.reports import SummaryRow

HELP = (
    "finds spending that could have been avoided: cache misses, large results that were carried along, files read "
    "again unchanged, calls that failed again and again, edits that were undone, repeated compactions, sessions that "
    "started with too much, subagents that cost more than they saved. Each kind has its advice, and its most expensive "
    "findings follow. `burnctl explain KIND` shows how a finding is proved. The first run reads everything, later ones "
    "only what has changed"
)
EXAMPLES = (
    "burnctl waste",
    "burnctl waste --since 7d",
    "burnctl waste --kind cache-miss",
    "burnctl waste --session 0f9c1d2e",
)
_OF_A_KIND, _OF_ONE_KIND = 4, 30
_SMALL = 0.01  # of all that is avoidable: smaller kinds share a line
_STYLES = {"high": "bold red", "medium": "yellow", "low": ""}
_QUOTE, _SHORT_QUOTE, _PROJECT = 60, 16, 14
_WIDE = 110  # columns


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(parser, WasteParams, skip=("per_kind",))
    flags.report(parser)


def run(options: argparse.Namespace) -> int:
    client = reach(options)
    few = _OF_ONE_KIND if options.kind else _OF_A_KIND
    with ProgressLine("looking") as client.progress:
        limit = options.limit or (None if options.json else MOST_FINDINGS)
        per_kind = None if options.json or options.limit else few
        answer = flags.ask(client, WasteParams, options, limit=limit, per_kind=per_kind)
    is_chosen = bool(options.kind or options.min_cost or options.limit)
    days = [] if options.json else _days(client, options)
    return present(
        options,
        answer,
        lambda found, screen: draw(found, screen, period_of(days), with_small=is_chosen, kind_asked=options.kind),
        client=client,
    )


def _days(client: Client, options: argparse.Namespace) -> list[SummaryRow]:
    """The days with requests; none from a daemon that is too old to answer."""
    try:
        return client.summary(**{**flags.given(options, Filters), "by": "day", "tz": flags.time_zone()})["rows"]
    except Failed:
        return []


def draw(
    answer: Mapping[str, Any],
    screen: Screen,
    period: str = "",
    *,
    with_small: bool = False,
    kind_asked: str | None = None,
) -> str:
    """The headline, then a block for each kind; small kinds share a line unless `with_small`."""
    if not answer["totals"]["turns"]:
        return ""
    add_caveats(answer, screen)
    avoidable = answer["avoidable"]["costUsd"]
    by_kind: dict[str, list[Mapping[str, Any]]] = {}
    for finding in answer["findings"]:
        by_kind.setdefault(finding["kind"], []).append(finding)
    lines, small = _headline(answer, screen, period, kind_asked), []
    heads = len(lines)
    for kind in answer["kinds"]:
        findings = by_kind.get(kind["kind"], ())
        if not findings:
            continue
        if not with_small and len(lines) > heads and avoidable and (kind["costUsd"] or 0) < _SMALL * avoidable:
            small.append(f"{kind['kind']} {money(kind['costUsd'])} ({counted(kind['findings'], 'finding')})")
            continue
        ttl_line = other_ttl(answer.get("cacheTtl")) if kind["kind"] == "cache-miss" else ""
        lines += ["", *_block(kind, findings, screen, ttl_line)]
        if with_small and kind["kind"] == "cache-miss":
            lines += _advices(findings, screen)
    if releases := answer.get("releases"):
        lines += ["", *_releases(releases, screen)]
    if small:
        less = f"Below {_SMALL:.0%} each: {', '.join(small)}. See one: burnctl waste --kind KIND"
        lines += ["", *wrap(less, screen.room)]
    return "\n".join(lines)


def _headline(answer: Mapping[str, Any], screen: Screen, period: str, kind: str | None) -> list[str]:
    totals, avoidable, levels = answer["totals"], answer["avoidable"], answer["severities"]
    whole, part = totals["costUsd"], avoidable["costUsd"]
    if not answer["findings"] and not answer.get("releases"):
        cheaper = answer["cheaperFindings"]
        below = f"Only {counted(cheaper, 'finding')} below --min-cost" if cheaper else "Nothing avoidable was found"
        line = f"{below} in {counted(totals['turns'], 'request')}" + (f" for {money(whole)}." if whole else ".")
    elif part is None or not whole:
        tokens = (number(sum(one["usage"].values())) for one in (avoidable, totals))
        line = "Avoidable: about {} of {} tokens{} (no token counted twice)".format(*tokens, period)
    else:
        share = f"({percent(part / whole)}, no token counted twice)"
        line = f"Avoidable: about {money(part)} of {money(whole)}{period} {share}"
        if cost := next((one["costUsd"] for one in answer["kinds"] if one["kind"] == kind), None):
            line += f", {money(cost)} of it {KINDS[kind or ''].title}"
    lines = [screen.paint(one, "bold") for one in wrap(line, screen.room)]
    if answer["findings"]:
        meaning = f"high: {money(levels['high'])} or more, medium: {money(levels['medium'])} or more"
        lines += [screen.paint(one, "dim") for one in flow([meaning, "proof: burnctl explain KIND"], screen)]
    return lines


def _advices(findings: Sequence[Mapping[str, Any]], screen: Screen) -> Iterator[str]:
    advices = {
        miss_words(one["evidence"]["reason"] or "", one["evidence"].get("proof")): remedy(one["advice"])
        for one in findings
        if not one["evidence"]["others"]
    }
    room = screen.room if screen.is_pipe else min(screen.width, 110) - 4
    for words, advice in advices.items():
        first, *rest = wrap(f"{words}: {advice[:1].lower()}{advice[1:]}", room)
        yield from (f"  · {first}", *(f"    {line}" for line in rest))


def _releases(releases: Sequence[Mapping[str, Any]], screen: Screen) -> Iterator[str]:
    yield screen.paint(f"{KINDS['release'].title} · release", "bold cyan")
    rows = []
    for one in releases[:_OF_A_KIND]:
        before, after = one["before"], one["after"]
        facts = []
        if "cost" in one["what"]:
            growth = after["costPerRequest"] / before["costPerRequest"] - 1
            facts.append(f"{percent(growth)} more a request than {before['version']}")
        if "misses" in one["what"]:
            facts.append(f"cache misses in {percent(after['missRate'])} of requests, not {percent(before['missRate'])}")
        name = f"{harness_name(one['source'])} {after['version']}, {short_model(one['model'])}"
        rows.append((money(one["extraUsd"]), f"{name}: {', '.join(facts)}"))
    yield table((Column("", "right"), Column("", least=24)), rows, screen, header=False, indent=2)


def other_ttl(ttl: Mapping[str, Any] | None) -> str:
    """What the other lifetime of cache writes would have cost."""
    if not ttl or not ttl["written"]:
        return ""
    lifetimes = {"5m": ("5 minutes", "if5mUsd"), "1h": ("1 hour", "if1hUsd")}
    facts = []
    for name in ("5m", "1h"):
        words, key = lifetimes[name]
        cost = ttl[key]
        if ttl["written"] == [name] or cost is None:
            continue
        difference = cost - ttl["costUsd"]
        facts.append(f"{words} would have cost about {money(abs(difference))} {'more' if difference > 0 else 'less'}")
    used = " and ".join(lifetimes[name][0] for name in ttl["written"])
    return f"Cache writes lasted {used}; {' and '.join(facts)} (estimate)." if facts else ""


def period_of(days: Sequence[Mapping[str, Any]]) -> str:
    """` in 12 days` from the first to the last day with a request; ` on Nov 7` for one day."""
    from datetime import date

    keys = [row["key"] for row in days if row["key"]]
    if not keys:
        return ""
    length = (date.fromisoformat(keys[-1]) - date.fromisoformat(keys[0])).days + 1
    return f" on {day_names(keys)[0]}" if length == 1 else f" in {counted(length, 'day')}"


def _block(
    kind: Mapping[str, Any], found: Sequence[Mapping[str, Any]], screen: Screen, ttl_line: str = ""
) -> Iterator[str]:
    about = KINDS.get(kind["kind"])
    title = about.title if about else kind["kind"]
    facts = f"{money(kind['costUsd'])} · {counted(kind['findings'], 'finding')} · {kind['kind']}"
    for n, line in enumerate(wrap(f"{title} · {facts}", screen.room)):
        head = line.startswith(title) and n == 0
        yield (
            screen.paint(title, "bold cyan") + screen.paint(line[len(title) :], "cyan")
            if head
            else screen.paint(line, "cyan")
        )
    room = screen.room if screen.is_pipe else min(screen.width, 110) - 2
    yield from (f"  {line}" for line in wrap(about.advice if about else kind["advice"], room))
    if about:
        one = [f"→ {about.place}: {about.line}"]
        pasted = [f"  {line}" for line in wrap(about.line, room - 2)]
        yield from (
            f"  {screen.paint(line, 'green')}"
            for line in (one if len(one[0]) <= room else [f"→ {about.place}:", *pasted])
        )
    yield _findings(found, screen)
    if ttl_line:
        yield from (f"  {screen.paint(line, 'dim')}" for line in wrap(ttl_line, room))
    if more := kind["findings"] - len(found):
        yield from (
            f"  {screen.paint(line, 'dim')}"
            for line in wrap(f"and {more:,} more: burnctl waste --kind {kind['kind']}", room)
        )


def _findings(found: Sequence[Mapping[str, Any]], screen: Screen) -> str:
    is_short = not screen.is_pipe and screen.width < _WIDE
    rows = []
    for finding in found:
        evidence = finding["evidence"]
        count = finding["projectCount"]
        where = counted(count, "project") if count > 1 else last_name(finding["project"]) if finding["project"] else ""
        where = cut(where, _PROJECT) if is_short else where
        more = finding["sessionCount"] - 1
        session = enough_of_id(evidence) + (f" +{more:,}" if more else "")
        style = _STYLES[finding["severity"]]
        rows.append(
            (
                (money(finding["costUsd"]), style),
                (finding["severity"], style),
                what(finding, is_short=is_short),
                where,
                session,
            )
        )
    columns = (
        Column("", "right"),
        Column("", drop=2),
        Column("", least=24),
        Column("", least=8, drop=1, style="dim"),
        Column("", style="dim"),
    )
    return table(columns, rows, screen, header=False, indent=2)


def what(finding: Mapping[str, Any], *, is_short: bool = False) -> str:
    """`src/app.py: read again 4 times`, `Bash “npm test” failed 5 times: “FAIL rounds to cents”`."""
    evidence, times = finding["evidence"], finding["times"]
    if evidence["others"]:
        return f"{counted(evidence['others'], 'small finding')} together"
    thing, tokens = _thing(finding, _SHORT_QUOTE if is_short else _QUOTE), number(evidence["entered"])
    at = evidence["turns"]
    requests_at = f"request{'s' if len(at) > 1 else ''} {', '.join(map(str, at[:4]))}{', ...' if len(at) > 4 else ''}"
    files = ", ".join(evidence["files"][:3])
    up_to, calls = ("up to ", f"{times:,} calls, ") if times > 1 else ("", "")
    requests = counted(evidence["rides"], "request")
    resent = f"{up_to}{evidence['rides']:,}\u00d7" if is_short else f"in {up_to}{requests}"
    error = f": “{cut(evidence['error'], _QUOTE)}”" if evidence.get("error") else ""
    failed = evidence["reason"] == "failed"
    proof = f" ({evidence['proof']})" if evidence.get("proof") else ""
    words = {
        "reread": f"{files}: read again {_times(times)}"
        + (", as large as before" if evidence["reason"] == "same-size" else ""),
        "rode-far": f"{thing}: {calls}{up_to}{tokens}{'' if is_short else ' tokens,'} re-sent {resent}",
        "oversized": f"{thing}: {calls}{up_to}{tokens} tokens{'' if is_short else ' at once'}",
        "retry-loop": f"{thing} failed {_times(times)}{error}",
        "failure-run": f"{times:,} calls in a row failed{error}",
        "edit-revert": f"{files}: {counted(times, 'edit')} undone",
        "cache-miss": f"{miss_sentence(evidence, is_short=True)}{'' if times == 1 else f', {_times(times)}'}{proof}",
        "prefix-bloat": f"{f'{times:,} sessions: ' if times > 1 else ''}{up_to}{tokens} tokens instead of about "
        f"{number(evidence['usual'])}",
        "compaction-churn": f"compacted {_times(times)}, at {requests_at}",
        "delegation": f"{thing}{' failed' if failed else ''}{f' ({times:,} subagents)' if times > 1 else ''}",
    }
    return words.get(finding["kind"]) or str(finding["kind"])


def _thing(finding: Mapping[str, Any], longest: int) -> str:
    """`Read src/app.py`, `Bash “npm test -- checkout”`."""
    evidence = finding["evidence"]
    tool, target, quote = evidence["tool"], evidence["target"], cut(evidence.get("quote") or "", longest)
    if not quote or (finding["times"] > 1 and target):
        return " ".join(filter(None, (tool, target)))
    is_target = target is not None and quote.startswith(target.split(" ")[0])  # a command begins with its own name
    return " ".join(filter(None, (tool, None if is_target else target, f"“{quote}”")))


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count:,} times")

"""How findings of waste read: what, where, how much, and what to do about it."""

from __future__ import annotations

from burnctl.render import misses
from burnctl.render.caveats import price_caveats
from burnctl.render.names import last_name, short_id
from burnctl.render.numbers import counted, money, number, percent
from burnctl.render.paragraphs import wrapped
from burnctl.render.text import clean, cut, width_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from burnctl.render.screen import Screen

_MARGIN = 11
_STYLES = {"high": "bold red", "medium": "yellow", "low": "dim"}
_LONGEST_QUOTE = 80
_BEFORE_A_QUOTE = {"retry-loop": ":", "failure-run": ", the first"}
_SHOWN_TURNS, _SHOWN_SESSIONS = 8, 4


def shown(answer: Mapping[str, Any], screen: Screen) -> str:
    """All of it, for a person."""
    if not answer["totals"]["turns"]:
        return ""
    lines = []
    for finding in answer["findings"]:
        lines += [*_finding(finding, answer["totals"]["costUsd"], screen), ""]
    lines += [line for note in _notes(answer) for line in wrapped(clean(note), screen.width)]
    return "\n".join(lines)


def _finding(finding: Mapping[str, Any], whole: float | None, screen: Screen) -> Iterator[str]:
    cost = finding["costUsd"]
    style = _STYLES[finding["severity"]]
    share = f" ({percent(cost / whole)} of the bill)" if whole and cost is not None else ""
    room = max(screen.width - _MARGIN, 20)
    head = wrapped(clean(f"{_what(finding)}{share}"), room)
    yield f"{screen.paint(f'{money(cost):>{_MARGIN - 2}}', style)}  {screen.paint(head[0], 'bold')}"
    for line in head[1:]:
        yield f"{'':{_MARGIN}}{screen.paint(line, 'bold')}"
    for text, how in ((_where(finding), "dim"), (_error(finding), "red"), (finding["advice"], "")):
        for line in wrapped(clean(text), room) if text else ():
            yield f"{'':{_MARGIN}}{screen.paint(line, how)}"


def _what(finding: Mapping[str, Any]) -> str:
    """One sentence of what happened."""
    evidence, times = finding["evidence"], finding["times"]
    if evidence["others"]:
        return (
            f"{counted(evidence['others'], 'more finding')} of the kind {finding['kind']}, each of them small, together"
        )
    thing, quote = _thing(finding)
    files = ", ".join(evidence["files"][:3])
    entered = number(evidence["entered"])
    project = last_name(evidence["target"])
    rides = counted(evidence["rides"], "turn")
    up_to, calls = ("up to ", f"{times:,} calls of ") if times > 1 else ("", "")
    said = {
        "reread": f"{files} was read {_times(times)} again, {_unchanged(evidence['reason'])}",
        "rode-far": f"{thing}: {calls}{up_to}{entered} tokens rode along in {up_to}{rides}{quote}",
        "oversized": f"{thing} brought in {up_to}{entered} tokens at once"
        f"{', ' + _times(times) if times > 1 else ''}{quote}",
        "retry-loop": f"{thing} failed {_times(times)}{quote}",
        "failure-run": f"{times:,} calls in a row failed{quote}",
        "edit-revert": f"{counted(times, 'edit')} of {files} came to nothing",
        "cache-miss": f"the cache was missed {_times(times)}: {misses.sentence(evidence['reason'] or '')}",
        "prefix-bloat": f"{counted(times, 'session')} of {project} began with {up_to}{entered} tokens "
        f"where {number(evidence['usual'])} are usual",
        "compaction-churn": f"the context was compacted {_times(times)}",
        "delegation": f"{thing}: {_agents(finding)}{quote}",
    }
    return said.get(finding["kind"]) or str(finding["kind"])


def _thing(finding: Mapping[str, Any]) -> tuple[str, str]:
    """What a finding is about, and behind what is said of several, how one of them was called."""
    evidence = finding["evidence"]
    tool, target, quote = evidence["tool"], evidence["target"], cut(evidence.get("quote") or "", _LONGEST_QUOTE)
    if quote and finding["times"] == 1:
        is_said = target is not None and quote.startswith(target.split(" ")[0])  # a command begins with its verb
        return " ".join(filter(None, (tool, None if is_said else target, f"“{quote}”"))), ""
    before = _BEFORE_A_QUOTE.get(finding["kind"], ", such as")
    return " ".join(filter(None, (tool, target))), f"{before} “{quote}”" if quote else ""


def _unchanged(reason: str | None) -> str:
    return "as large as before" if reason == "same-size" else "unchanged"


def _agents(finding: Mapping[str, Any]) -> str:
    who = "the agent" if finding["times"] == 1 else f"{finding['times']:,} agents"
    if finding["evidence"]["reason"] == "failed":
        return f"{who} failed, and the work was for nothing"
    return f"{who} cost more than the work itself would have"


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count:,} times")


def _where(finding: Mapping[str, Any]) -> str:
    """Which turns of which session, as they may be typed back in."""
    evidence = finding["evidence"]
    turns = _turns(evidence["turns"]) if evidence["turns"] else ""
    of = ", started" if finding["kind"] == "delegation" else " of"
    rail = f"{of} subagent {short_id(evidence['railId'])}" if evidence["railId"] not in (None, "main") else ""
    first = " ".join(filter(None, (f"in {short_id(evidence['sessionId'])}", f"{turns}{rail}")))
    others = [short_id(session) for session in finding["sessions"] if session != evidence["sessionId"]]
    more = finding["sessionCount"] - 1
    also = f"; also in {', '.join(others[:_SHOWN_SESSIONS])}" if others else ""
    also += f" and {more - _SHOWN_SESSIONS:,} more" if more > _SHOWN_SESSIONS else ""
    return " · ".join(filter(None, (f"{finding['kind']}, {finding['severity']}", _project(finding), f"{first}{also}")))


def _project(finding: Mapping[str, Any]) -> str:
    if finding["projectCount"] > 1:
        return f"{finding['projectCount']:,} projects"
    return last_name(finding["project"]) if finding["project"] else ""


def _turns(turns: Sequence[int]) -> str:
    listed = ", ".join(str(turn) for turn in turns[:_SHOWN_TURNS])
    named = "turn" if len(turns) == 1 else "turns"
    return f"{named} {listed}" + (", ..." if len(turns) > _SHOWN_TURNS else "")


def _error(finding: Mapping[str, Any]) -> str:
    error = finding["evidence"].get("error")
    return f"“{cut(error, 160)}”" if error and width_of(error) else ""


def _notes(answer: Mapping[str, Any]) -> Iterator[str]:
    turns = answer["totals"]["turns"]
    cheaper = answer["cheaperFindings"]
    below = f"{counted(cheaper, 'finding')} below --min-cost"
    if not answer["findings"]:
        yield f"{f'Only {below}' if cheaper else 'Nothing to be found'} in {counted(turns, 'turn')}."
        yield from price_caveats(answer)
        return
    if answer["moreFindings"]:
        more = answer["moreFindings"]
        yield f"{more:,} more {'finding is' if more == 1 else 'findings are'} not shown; see --limit and --min-cost."
    if cheaper:
        yield f"{below} {'is' if cheaper == 1 else 'are'} not shown."
    cost = answer["totals"]["costUsd"]
    paid = f" for {money(cost)} at API prices" if cost is not None else ", none with a price"
    yield (
        f"Looked at: {counted(turns, 'turn')}{paid}. Findings of different kinds may be about the same tokens: do "
        "not add them up."
    )
    yield from price_caveats(answer)

"""`burnctl report`: one HTML file to read and send: spend over time, causes, waste, the costliest sessions."""

from __future__ import annotations

from burnctl import flags
from burnctl.daemon import reach
from burnctl.output import write_file
from burnctl.progress import ProgressLine
from burnctl.render.names import distinct_names, enough_of_id, harness_name, last_name
from burnctl.render.notes import API_PRICES, backfill_line, caveats
from burnctl.render.numbers import ago, count, counted, money, number, percent
from burnctl.render.text import clean
from burnd.contract import Params, param
from burnd.contract.reports import Filters

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from burnctl.client import Client

HELP = (
    "writes a report as one HTML file that needs no network: spend over time, by project, model, agent and activity, "
    "what it went to, what was avoidable, and the most expensive sessions with their course. It has no prompts, titles "
    "or quotes unless --with-text is given, so that it can be sent. Filters choose what it is about; by default that "
    "is everything"
)
EXAMPLES = ("burnctl report -o report.html", "burnctl report -o november.html --since 2026-11 --project shop-api")
_DIMENSIONS = {
    "project": "projects",
    "model": "models",
    "agent": "agents",
    "activity": "activities",
    "source": "harnesses",
}
_ROWS, _SESSIONS, _PICTURES, _STEPS, _FINDINGS = 12, 15, 5, 150, 8


class ReportFlags(Params):
    output: str = param(help="the file to write; - is stdout", flag="-o --output", metavar="FILE")
    with_text: bool = param(default=False, help="include titles, commands and errors from the sessions")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(parser, ReportFlags, Filters)
    flags.add(parser, flags.Output, only=("no_start", "no_wait"))


def run(options: argparse.Namespace) -> int:
    client = reach(options, causes=True)
    with ProgressLine("collecting") as show:
        answers = collect(
            client, {**flags.given(options, Filters), "tz": flags.time_zone()}, with_text=options.with_text, show=show
        )
    write_file(options.output, page(answers))
    return 0


def collect(client: Client, filters: dict[str, Any], *, with_text: bool, show: Any = None) -> dict[str, Any]:
    """The answers for the report. Without `with_text` they quote no prompt or result."""
    steps = len(_DIMENSIONS) + 5 + _PICTURES
    done = 0

    def step(answer: Mapping[str, Any]) -> Mapping[str, Any]:
        nonlocal done
        done += 1
        if show is not None:
            show({"done": done, "total": steps})
        return answer

    answers: dict[str, Any] = {"by": {}, "withText": with_text}
    answers["days"] = step(client.summary(by="day", **filters))
    for by in _DIMENSIONS:
        answers["by"][by] = step(client.summary(by=by, limit=_ROWS, **filters))
    answers["sessions"] = step(client.summary(by="session", limit=_SESSIONS, **filters))
    answers["tools"] = step(client.hotspots(by="tool", **filters))
    answers["commands"] = step(client.hotspots(by="command", limit=10_000, **filters))
    answers["waste"] = step(client.waste(limit=200, per_kind=_FINDINGS, **filters))
    keys = [row["key"] for row in answers["sessions"]["rows"] if row["key"]]
    answers["meta"] = {key: client.sessions_meta(key) for key in keys}
    answers["flows"] = [step(client.flow(key, limit=_STEPS)) for key in keys[:_PICTURES]]
    if not with_text:
        for finding in answers["waste"]["findings"]:
            for name in ("quote", "error"):
                finding["evidence"].pop(name, None)
        for facts in answers["meta"].values():
            facts["title"] = facts["summary"] = None
        for flow in answers["flows"]:
            flow["title"] = None
    return answers


def groups_of(tools: Mapping[str, Any], commands: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The groups of `why` over all sessions."""
    parts: dict[tuple[str, str], dict[str, Any]] = {}

    def add(group: str, row: Mapping[str, Any], sign: int = 1) -> None:
        part = parts.setdefault((group, row["key"]), {"key": row["key"], "costUsd": 0.0, "tokens": 0})
        part["costUsd"] += sign * (row["costUsd"] or 0)
        part["tokens"] += sign * sum(row["usage"].values())

    shell = [row for row in tools["rows"] if row["group"] == "shell"]
    for row in tools["rows"]:
        add(row["group"] or "rest", row)
    for row in commands["rows"]:
        if row["kind"] == "command" and row["group"] == "files" and shell:
            add("files", row)
            # Several tools may have run a command; the group is the same for all.
            add("shell", {**row, "key": shell[0]["key"]}, -1)
    groups: dict[str, list[dict[str, Any]]] = {}
    for (group, _), part in parts.items():
        groups.setdefault(group, []).append(part)
    return [
        {
            "key": key,
            "costUsd": sum(part["costUsd"] for part in some),
            "usage": {"tokens": sum(part["tokens"] for part in some)},
            "parts": sorted(some, key=lambda part: -part["costUsd"]),
        }
        for key, some in groups.items()
    ]


_MOST_BARS = 120
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 960, 240, 84, 24
_TITLES = {"project": "project", "model": "model", "agent": "agent", "activity": "activity", "source": "harness"}
_NO_KEY = {"agent": "main conversation", "activity": "not labelled", "project": "no project", "model": "unknown model"}

_STYLE = """
:root{color-scheme:light dark;--bg:#fff;--fg:#1c2024;--dim:#62707d;--line:#dfe4e8;--panel:#f6f8f9;--bar:#2f81b7;
--red:#c0392b;--amber:#a86400;--green:#1f7a4d;--f:#d9534f;--w:#e09a2f;--r:#3f9fc4;--o:#9b59b6;--c:#e8eff4;--e:#9db4c6}
@media(prefers-color-scheme:dark){:root{--bg:#14181b;--fg:#e4e8eb;--dim:#98a5b0;--line:#2c343a;--panel:#1b2125;
--bar:#4aa3d8;--red:#ef7568;--amber:#e2a548;--green:#5bc48d;--f:#e0685f;--w:#e2a548;--r:#55b3d6;--o:#b685cd;
--c:#22303a;--e:#4a6274}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--fg);font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:1120px;margin:0 auto;padding:24px 16px 64px}
h1{font-size:1.6rem;line-height:1.25;margin:0 0 4px}h2{font-size:1.2rem;margin:40px 0 8px}
h3{font-size:1rem;margin:20px 0 4px}
p{margin:4px 0 12px;max-width:75ch}.dim{color:var(--dim)}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(130px,1fr));gap:12px;margin:20px 0}
.card{background:var(--panel);border:1px solid var(--line);border-radius:8px;padding:10px 14px}
.card b{display:block;font-size:1.3rem;font-variant-numeric:tabular-nums}.card span{color:var(--dim);font-size:.85rem}
.grid{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,460px),1fr));gap:8px 32px}
.grid>div{min-width:0}
table{border-collapse:collapse;width:100%;font-size:.9rem;table-layout:auto}
th,td{padding:5px 8px;border-bottom:1px solid var(--line);text-align:left;vertical-align:top}
th{color:var(--dim);font-weight:600;white-space:nowrap}td{overflow-wrap:anywhere}
.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap;overflow-wrap:normal}
th button{all:unset;cursor:pointer}th button:focus-visible{outline:2px solid var(--bar)}
th[aria-sort=descending] button::after{content:" \\25be"}th[aria-sort=ascending] button::after{content:" \\25b4"}
.b{width:22%}.b i{display:block;height:.8em;margin-top:.35em;min-width:1px;background:var(--bar);border-radius:2px}
svg{display:block;width:100%;height:auto}.chart rect{fill:var(--bar)}.chart text{fill:var(--dim);font-size:12px}
.chart line{stroke:var(--line)}
.high{color:var(--red);font-weight:600}.medium{color:var(--amber)}.low{color:var(--dim)}
code{font:.88em ui-monospace,monospace;background:var(--panel);border:1px solid var(--line);border-radius:4px;
padding:0 4px;overflow-wrap:anywhere}.id{white-space:nowrap}
details{border:1px solid var(--line);border-radius:8px;padding:8px 12px;margin:10px 0}
summary{cursor:pointer;font-weight:600}
.scroll{overflow-x:auto}.flow{min-width:640px}
.flow text{font-family:inherit;font-size:12px;fill:var(--fg)}.flow .d,.flow .s{fill:var(--dim)}.flow .d{font-size:11px}
.flow .s{font-size:9px}.flow .t{font-size:18px;font-weight:600}.flow .b{font-weight:600}.flow .l{stroke:var(--line)}
.flow .c{fill:var(--c);stroke:var(--e)}.flow .a{fill:none;stroke:var(--dim);stroke-dasharray:4 3}
.flow .m{stroke:var(--o);stroke-dasharray:3 3}.flow .x{fill:var(--red)}
.warn{border-left:4px solid var(--amber);padding:6px 12px;background:var(--panel)}
@media(max-width:640px){.w{display:none}.chart text{font-size:28px}th,td{padding:5px 4px}main{padding:16px 10px 48px}}
@media print{body{font-size:11px}main{max-width:none;padding:0}h2{break-after:avoid}tr,.card,svg{break-inside:avoid}
details{border:0;padding:0}.scroll{overflow:visible}.flow{min-width:0}}
"""
_SCRIPT = """
for(const t of document.querySelectorAll("table.s"))t.querySelectorAll("thead th").forEach((h,i)=>{
if(!h.textContent)return;
const b=document.createElement("button");b.type="button";b.textContent=h.textContent;h.replaceChildren(b);
b.onclick=()=>{const up=h.getAttribute("aria-sort")==="descending";
for(const o of t.querySelectorAll("th"))o.removeAttribute("aria-sort");
h.setAttribute("aria-sort",up?"ascending":"descending");
const v=r=>{const c=r.cells[i];return c.dataset.v===undefined?c.textContent:+c.dataset.v};
const rows=[...t.tBodies[0].rows].sort((a,b)=>{const x=v(a),y=v(b);
return(typeof x==="number"&&typeof y==="number"?x-y:String(x).localeCompare(String(y)))*(up?1:-1)});
t.tBodies[0].append(...rows)}})
addEventListener("beforeprint",()=>{for(const d of document.querySelectorAll("details"))d.open=true})
"""


def page(answers: Mapping[str, Any]) -> str:
    return "\n".join(_lines(answers)) + "\n"


def _lines(answers: Mapping[str, Any]) -> Iterator[str]:
    import time

    days = answers["days"]
    totals, filters = days["totals"], days["filters"]
    keys = [row["key"] for row in days["rows"] if row["key"]]
    title = ", ".join(["Agent spending", *([" to ".join(dict.fromkeys((keys[0], keys[-1])))] if keys else [])])
    yield '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width,initial-scale=1">'
    yield f"<title>{_text(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>"
    yield f"<h1>{_text(title)}</h1>"
    filters_text = [f"{name} {value}" for name, value in filters.items() if name not in ("since", "until", "tz")]
    day = time.strftime("%Y-%m-%d %H:%M")
    yield f'<p class="dim">{_text(" · ".join([*filters_text, f"written by burnd on {day}"]))}</p>'
    if line := backfill_line(days):
        yield f'<p class="warn">{_text(line)}</p>'
    if not totals["turns"]:
        yield "<p>No requests match.</p>\n</main>\n</body>\n</html>"
        return
    yield from _cards(totals, answers)
    yield "<h2>Spend over time</h2>"
    yield _chart(days["rows"])
    yield "<h2>What it went to</h2>"
    yield "<p>Every request is billed for its whole context. This is the bill by what put the tokens there.</p>"
    yield _group_table(groups_of(answers["tools"], answers["commands"]), totals)
    yield "<h2>Who and what for</h2>\n<div class=grid>"
    for by, answer in answers["by"].items():
        if len(answer["rows"]) > (1 if by in ("agent", "source") else 0):
            yield f"<div><h3>By {_TITLES[by]}</h3>{_dimension_table(by, answer)}</div>"
    yield "</div>"
    yield from _waste(answers["waste"])
    yield from _sessions(answers)
    yield "<h2>Notes</h2>"
    for note in [*caveats(days), API_PRICES]:
        yield f'<p class="dim">{_text(note)}</p>'
    yield f"</main>\n<script>{_SCRIPT}</script>\n</body>\n</html>"


def _cards(totals: Mapping[str, Any], answers: Mapping[str, Any]) -> Iterator[str]:
    tokens = sum(totals["usage"].values())
    avoidable = answers["waste"]["avoidable"]["costUsd"]
    cards = [
        ("cost", money(totals["costUsd"]), totals["costUsd"]),
        ("requests", count(totals["turns"]), totals["turns"]),
        ("tokens", number(tokens), tokens),
        ("input from the cache", percent(totals["cacheHitRate"]), totals["cacheHitRate"]),
        ("avoidable", money(avoidable), avoidable),
    ]
    yield '<div class="cards">'
    for name, text, value in cards:
        exact = "" if value is None else f' data-v="{value!r}"'
        yield f'<div class="card"><b id="{name.split()[0]}"{exact}>{_text(text)}</b><span>{name}</span></div>'
    yield "</div>"


def _chart(rows: Sequence[Mapping[str, Any]]) -> str:
    """A column for each day, or for a few days of a long period."""
    from datetime import date, timedelta

    costs = {date.fromisoformat(row["key"]): row["costUsd"] or 0.0 for row in rows if row["key"]}
    if not costs:
        return ""
    first, last = min(costs), max(costs)
    size = -(-((last - first).days + 1) // _MOST_BARS)
    starts = [first + timedelta(n) for n in range(0, (last - first).days + 1, size)]
    bars = [(start, sum(costs.get(start + timedelta(n), 0.0) for n in range(size))) for start in starts]
    most = max(cost for _, cost in bars) or 1.0
    wide = (_WIDTH - _LEFT) / len(bars)
    high = _HEIGHT - _BOTTOM - 16
    parts = [f'<svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="Cost by day">']
    for share in (0.0, 0.5, 1.0):
        y = _HEIGHT - _BOTTOM - share * high
        parts.append(f'<line x1="{_LEFT}" x2="{_WIDTH}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_text(money(most * share))}</text>')
    for n, (start, cost) in enumerate(bars):
        tall = high * cost / most
        x, thick = _LEFT + n * wide + wide * 0.1, max(min(wide * 0.8, 40), 1)
        end = start + timedelta(size - 1)
        when = start.isoformat() if size == 1 else f"{start.isoformat()} to {end.isoformat()}"
        place = f'x="{x:.1f}" y="{_HEIGHT - _BOTTOM - tall:.1f}" width="{thick:.1f}" height="{tall:.1f}"'
        parts.append(f"<rect {place}><title>{when}: {_text(money(cost))}</title></rect>")
    for n in sorted({0, len(bars) // 2, len(bars) - 1}):
        anchor = "start" if n == 0 else "end" if n == len(bars) - 1 else "middle"
        x = _LEFT + n * wide + (wide if anchor == "end" else wide / 2 if anchor == "middle" else 0)
        parts.append(f'<text x="{x:.1f}" y="{_HEIGHT - 6}" text-anchor="{anchor}">{bars[n][0].isoformat()}</text>')
    return "".join([*parts, "</svg>"])


def _group_table(groups: Sequence[Mapping[str, Any]], totals: Mapping[str, Any]) -> str:
    from burnctl.commands.why import group_rows, whole_percents

    rows = group_rows(groups, totals)
    shares = whole_percents([amount for _, amount in rows])
    whole = sum(amount for _, amount in rows) or 1
    show = money if totals["costUsd"] is not None else number
    body = [
        [
            _cell(label),
            _number(show(amount), amount),
            _number(f"{share}%" if share else "<1%", share),
            f'<td class="b" data-v="{amount / whole!r}"><i style="width:{100 * amount / whole:.1f}%"></i></td>',
        ]
        for (label, amount), share in zip(rows, shares, strict=True)
    ]
    return _table(["where it went", "cost", "share", ""], body)


def _dimension_table(by: str, answer: Mapping[str, Any]) -> str:
    keys = [row["key"] for row in answer["rows"]]
    names = distinct_names(keys) if by == "project" else [*map(harness_name if by == "source" else str, keys)]
    body = []
    for row, key, label in zip(answer["rows"], keys, names, strict=True):
        name = _NO_KEY.get(by, "none") if key is None else label
        body.append(
            [
                _cell(name),
                _number(money(row["costUsd"]), row["costUsd"]),
                _number(percent(row["share"]), row["share"]),
                _number(count(row["turns"]), row["turns"], "w"),
                _number(percent(row["cacheHitRate"]), row["cacheHitRate"], "w"),
            ]
        )
    more = f'<p class="dim">and {answer["moreRows"]:,} more</p>' if answer["moreRows"] else ""
    return _table([_TITLES[by], "cost", "share", "requests", "cached"], body, hidden=("requests", "cached")) + more


def _waste(waste: Mapping[str, Any]) -> Iterator[str]:
    from burnctl.commands.explain import KINDS
    from burnctl.commands.waste import what

    whole, part = waste["totals"]["costUsd"], waste["avoidable"]["costUsd"]
    yield "<h2>Avoidable</h2>"
    if not waste["findings"]:
        yield "<p>Nothing avoidable was found.</p>"
        return
    if part is not None and whole:
        yield f"<p><b>About {_text(money(part))} of {_text(money(whole))}</b> ({percent(part / whole)}). No token is "
        yield "counted twice, so the kinds below add up to more.</p>"
    for kind in waste["kinds"]:
        findings = [one for one in waste["findings"] if one["kind"] == kind["kind"]]
        if not findings:
            continue
        about = KINDS.get(kind["kind"])
        title = about.title if about else kind["kind"]
        facts = f"{money(kind['costUsd'])}, {counted(kind['findings'], 'finding')}"
        yield f"<details open><summary>{_text(title)}: {_text(facts)}</summary>"
        if about:
            yield f"<p>{_text(about.advice)}<br>{_text(about.place)}: <code>{_text(about.line)}</code></p>"
            yield f'<p class="dim">Proof: {_text(about.proof)}</p>'
        body = []
        for one in findings:
            project = counted(one["projectCount"], "project") if one["projectCount"] > 1 else last_name(one["project"])
            more = one["sessionCount"] - 1
            session = enough_of_id(one["evidence"]) + (f" and {more:,} more" if more else "")
            cost = _number(money(one["costUsd"]), one["costUsd"], one["severity"])
            body.append([cost, _cell(what(one)), _cell(project, "w"), _cell(session, "" if more else "id")])
        yield _table(["cost", "finding", "project", "session"], body, numbers=("cost",), hidden=("project",))
        yield "</details>"


def _sessions(answers: Mapping[str, Any]) -> Iterator[str]:
    import time

    from burnctl.commands.flow import draw_svg

    rows = [row for row in answers["sessions"]["rows"] if row["key"]]
    if not rows:
        return
    now, with_text = time.time() * 1000, answers["withText"]
    yield "<h2>The most expensive sessions</h2>"
    body = []
    for row in rows:
        facts = answers["meta"][row["key"]]
        title = [_cell(facts["title"] or "")] if with_text else []
        body.append(
            [
                _cell(enough_of_id(row), "id"),
                *title,
                _cell(last_name(facts["project"]), "" if not with_text else "w"),
                _cell(ago(facts["updatedAt"], now), "w"),
                _number(count(row["turns"]), row["turns"]),
                _number(money(row["costUsd"]), row["costUsd"]),
                _number(percent(row["share"]), row["share"], "w"),
            ]
        )
    heads = ["session", *(["title"] if with_text else []), "project", "last request", "requests", "cost", "share"]
    hidden = ("last request", "share", *(["project"] if with_text else []))
    yield _table(heads, body, numbers=("requests", "cost", "share"), hidden=hidden)
    for flow in answers["flows"]:
        head = f"Course of {enough_of_id(flow)}: {money(flow['totals']['costUsd'])}"
        yield f"<details open><summary>{_text(head)}</summary><div class=scroll>"
        yield draw_svg({**flow, "project": last_name(flow["project"])}, embedded=True)
        yield "</div></details>"


def _table(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    numbers: Sequence[str] = ("cost", "share", "requests", "cached"),
    hidden: Sequence[str] = (),
) -> str:
    """A table to sort by its headings; `hidden` columns are left out on a narrow screen."""
    titles = []
    for head in heads:
        classes = " ".join(name for name, used in (("n", head in numbers), ("w", head in hidden)) if used)
        titles.append(f'<th class="{classes}">{head}</th>' if classes else f"<th>{head}</th>")
    body = "\n".join(f"<tr>{''.join(row)}</tr>" for row in rows)
    return f'<table class="s"><thead><tr>{"".join(titles)}</tr></thead>\n<tbody>\n{body}\n</tbody></table>'


def _cell(text: str, style: str = "") -> str:
    return f'<td class="{style}">{_text(text)}</td>' if style else f"<td>{_text(text)}</td>"


def _number(text: str, value: float | None, style: str = "") -> str:
    classes = f"n {style}".strip()
    return f'<td class="{classes}" data-v="{value if value is not None else -1!r}">{_text(text)}</td>'


def _text(text: object) -> str:
    from html import escape

    return escape(clean(text))

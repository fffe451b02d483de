"""`burnctl report`: one HTML file to read and to send: spend over time, its causes, waste, the costliest sessions."""

from __future__ import annotations

from burnctl import flags
from burnctl import options as own
from burnctl.progress_line import ProgressLine
from burnctl.starting import reach
from burnd.contract.reports import Filters

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.add(parser, own.Report, Filters)
    flags.add(parser, own.Output, only=("no_start", "no_wait"))


def run(options: argparse.Namespace) -> int:
    from burnctl.output import write_file
    from burnctl.render.report import page

    client = reach(options, causes=True)
    with ProgressLine("collecting") as show:
        answers = collect(
            client, {**flags.given(options, Filters), "tz": flags.time_zone()}, with_text=options.with_text, show=show
        )
    write_file(options.output, page(answers))
    return 0


def collect(client: Client, filters: dict[str, Any], *, with_text: bool, show: Any = None) -> dict[str, Any]:
    """The answers that the report is made of. Without `with_text` nothing in them is from a prompt or a result."""
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
        for facts in (*answers["meta"].values(), *answers["flows"]):
            facts["title"] = facts["summary"] = None
    return answers


def groups_of(tools: Mapping[str, Any], commands: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The groups of `why` over all sessions: tools by their group, and of the shell what only read files apart."""
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
            # A command may have been run by several tools; which one does not matter for the group.
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

"""Methods that answer what was spent, why, and where to save."""

from __future__ import annotations

from burnd.contract import LONG_S, Params, param
from burnd.harness.registry import SOURCES, USUAL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ClassVar

    from burnd.contract.results import reports as results

DIMENSIONS = (
    *("model", "provider", "project", "branch", "session"),
    *("day", "hour", "week", "month"),
    *("activity", "agent", "source", "version", "pr"),
)
FLEET_DIMENSIONS = ("machine", "user", "team")  # only of reports over many machines
CAUSES = ("tool", "file", "command", "mcp", "skill", "subagent", "prompt", "prefix", "cache-miss")
TWO = "WHAT,DIMENSION"
RANKS = ("cost", "tokens", "rides")
COMPARED = ("model", "source", "version", "pr")
ACTIVITIES = (
    *("planning", "delegation", "testing", "review", "git", "deps", "format", "verification", "build-deploy"),
    *("coding", "docs", "debugging", "refactoring", "feature", "exploration", "reasoning", "brainstorming"),
    "conversation",
)
FINDINGS = (
    *("reread", "rode-far", "oversized", "retry-loop", "failure-run", "edit-revert", "cache-miss", "prefix-bloat"),
    *("compaction-churn", "delegation", "release"),
)
UNLABELLED = "none"
TAG = "tag:KEY"
WINDOWS = ("5h", "7d")
MOST_ROWS = 10_000
MOST_CAUSES = 2000
MOST_FINDINGS = 500
MOST_STEPS = 4000
MOST_EXPORTED = 5000
MOST_CHANGES = 10_000
MOST_READINGS = 100

SINCE = "start of the period: 24h, 7d, today, week, month, 2026-11, a date or time"
UNTIL = "end of the period; a date includes the whole day"
TZ = "time zone of days and times: a name, +05:45, or minutes east of UTC (UTC)"


class Filters(Params):
    """The filters of every report. Each one narrows it."""

    since: int | str | None = param(default=None, help=SINCE, kind="time")
    until: int | str | None = param(default=None, help=UNTIL, kind="time")
    tz: int | str | None = param(default=None, help=TZ, flag="")
    project: str | None = param(
        default=None,
        help="only this project: a folder, a git remote or the end of one; . is this folder",
        kind="project",
    )
    session: str | None = param(
        default=None, help="only this session, with its subagents and child sessions", kind="session"
    )
    workflow: str | None = param(default=None, help="only this workflow, by its tag", metavar="ID")
    agent: str | None = param(default=None, help="only this agent: a tagged or named one, or a subagent", kind="agent")
    tags: dict[str, str] = param(default={}, help="only what has this tag", kind="tag", flag="--tag")
    source: str | None = param(default=None, help="only this harness", kind="source", choices=SOURCES)
    model: str | list[str] | None = param(default=None, help="only this model", kind="model")
    provider: str | None = param(default=None, help="only requests that this provider served", metavar="NAME")
    branch: str | None = param(default=None, help="only this git branch", metavar="BRANCH")
    activity: str | None = param(
        default=None, help="only this kind of work", choices=(*ACTIVITIES, UNLABELLED), metavar="LABEL"
    )
    version: str | None = param(
        default=None, help="only this release of a harness: 2.1.4, or 2.1 for all of its releases", metavar="VERSION"
    )


# Dimensions that a quick pass over the logs finds out.
OF_TOTALS = ("model", "provider", "project", "branch", "session", "day", "hour", "week", "month", "source")


class SummaryParams(Filters, method="summary", errors=("not_found",), partial=True):
    """Adds up what was spent: in total, and by model or another dimension."""

    answer: ClassVar[results.Summary]
    of_totals = (
        *("by", "series", "limit"),
        *("since", "until", "tz", "project", "session", "workflow", "tags", "source", "model", "provider", "branch"),
    )
    by: str = param(
        default="model",
        help="what the rows are, one or two such as day,model",
        choices=DIMENSIONS,
        others=TAG,
        metavar="WHAT",
    )
    quality: bool = param(default=False, help="add one-shot rates, and how sessions ended")
    tree: bool = param(default=False, help="with --by agent: show agents below those that started them")
    series: bool = param(default=False, help="add the cost of each day", flag="")
    limit: int = param(default=MOST_ROWS, help="at most this many rows", kind="count", most=MOST_ROWS)

    def beyond_totals(self) -> list[str]:
        return [*([] if {*self.by.split(",")} <= {*OF_TOTALS} else ["by"]), *super().beyond_totals()]


class CompareParams(Filters, method="compare", errors=("not_found",), partial=True):
    """Compares models, harnesses, releases, pull requests or values of a tag on the same activities."""

    answer: ClassVar[results.Compare]
    models: str | list[str] | None = param(
        default=None, help="only these models, by name or family", kind="models", metavar="A,B"
    )
    by: str = param(default="model", help="what is compared", choices=COMPARED, others=TAG, metavar="WHAT")
    min_sample: int = param(default=5, help="mark cells with fewer requests", kind="count", most=MOST_ROWS)
    what_if: str | None = param(
        default=None, help="also price the same tokens at this model's prices", kind="model", metavar="MODEL"
    )


class ExportParams(Filters, method="export", errors=("not_found",), partial=True):
    """Returns a page of turns with their stamps and cost."""

    answer: ClassVar[results.Export]
    limit: int = param(default=1000, help="turns of a page", kind="count", least=1, most=MOST_EXPORTED, flag="")
    after: str | None = param(default=None, help="`next` of the page before", flag="")
    whole_days: bool = param(default=False, help="widen the period to whole days of UTC", flag="")


class ChangesParams(Params, method="changes", partial=True):
    """Returns a page of the rows that changed since a cursor: turns, sessions, causes and findings, for a push."""

    answer: ClassVar[results.Changes]
    cursor: str | None = param(default=None, help="`cursor` of the page before (everything)", flag="")
    limit: int = param(
        default=2000, help="turns and causes of a page, about; 0: only counts", least=0, most=MOST_CHANGES, flag=""
    )
    restart: bool = param(default=False, help="begin with everything again, with higher numbers", flag="")


class PricingParams(Params, method="pricing.show"):
    """Shows the prices of a model, or why it has none."""

    answer: ClassVar[results.Pricing]
    model: str = param(help="a model, in any spelling that a log may have", kind="model", kw_only=False)
    provider: str | None = param(default=None, help="who served it (its maker)", metavar="NAME")


class WhyParams(Params, method="why", errors=("not_found",), partial=True):
    """Explains what a session, or one turn of it, was spent on. The causes add up to its cost."""

    answer: ClassVar[results.Why]
    session: str = param(help="a session's id, or the beginning of one", kind="session", kw_only=False)
    turn: int | None = param(default=None, help="explain one request, counted from 0", kind="index")
    rail: str | None = param(default=None, help="with --turn: of this subagent, not of the main conversation")
    tree: bool = param(default=False, help="list subagents and child sessions with their own causes")
    limit: int = param(default=500, help="at most this many causes", kind="count", most=MOST_CAUSES)
    since: int | str | None = param(default=None, help=SINCE, kind="time")
    until: int | str | None = param(default=None, help=UNTIL, kind="time")
    tz: int | str | None = param(default=None, help=TZ, flag="")


class ByToolParams(Filters, method="by_tool", errors=("not_found",), partial=True):
    """Shows what each tool cost. The rows add up to the bill."""

    answer: ClassVar[results.Hotspots]
    rank: str = param(
        default="cost", help="sort by cost, by tokens, or by tokens that were sent again (rides)", choices=RANKS
    )
    limit: int = param(default=1000, help="at most this many rows", kind="count", most=MOST_ROWS)


class HotspotsParams(ByToolParams, method="hotspots", errors=("not_found",), partial=True):
    """Shows what the money was spent on over all sessions: tools, files, commands. The rows add up to the bill."""

    by: str = param(default="tool", help="what the rows are", choices=CAUSES, others=TWO, metavar="WHAT")


class WasteParams(Filters, method="waste", errors=("not_found",), deadline=LONG_S, partial=True, progress=True):
    """Finds spending that could have been avoided, with evidence and advice."""

    answer: ClassVar[results.Waste]
    min_cost: float = param(
        default=0.0, help="only findings that cost at least this much", kind="dollars", least=0, most=1e12
    )
    limit: int = param(default=50, help="at most this many findings", kind="count", most=MOST_FINDINGS)
    kind: str | None = param(default=None, help="only findings of this kind", choices=FINDINGS, metavar="KIND")
    per_kind: int = param(
        default=MOST_FINDINGS, help="at most this many of each kind", kind="count", most=MOST_FINDINGS
    )


class OverheadParams(Filters, method="overhead", errors=("not_found",), deadline=LONG_S, partial=True, progress=True):
    """Shows what sessions began with, and what each token of that cost."""

    answer: ClassVar[results.Overhead]


class FlowParams(Params, method="flow", errors=("not_found",), partial=True):
    """Shows how a session went: its rails as lanes of steps, with what each called, started and cost."""

    answer: ClassVar[results.Flow]
    session: str = param(help="a session's id, or the beginning of one", kind="session", kw_only=False)
    limit: int = param(default=400, help="draw long sessions in about this many steps", kind="count", most=MOST_STEPS)


class LimitsParams(Params, method="limits", errors=("not_found",), partial=True):
    """Shows the windows of a plan and the budgets: used so far, forecast, and windows of the past."""

    answer: ClassVar[results.Limits]
    of_totals = ("source", "history")
    source: str = param(default=USUAL, help="the harness whose plan it is", kind="source", choices=SOURCES)
    history: int = param(default=10, help="number of past windows", kind="index", least=0, most=1000, metavar="N")
    filled: bool = param(default=False, help="show what filled the running window and those that reached the limit")


class StatuslineParams(Params, method="statusline", partial=True):
    """Returns the few numbers of a status line."""

    answer: ClassVar[results.Statusline]
    of_totals = ("session", "source")
    session: str | None = param(default=None, help="the session whose line it is", kind="session")
    source: str = param(default=USUAL, help="its harness", kind="source")


class ReadingParams(Params):
    """How much of a window is used."""

    window: str = param(help="the window", choices=WINDOWS)
    used_percent: float = param(help="percent used")
    resets_at: str | None = param(default=None, help="ISO time at which it resets")


class QuotaParams(Params, method="quota"):
    """Records readings of a plan's windows, as the provider gave them."""

    answer: ClassVar[results.Quota]
    readings: list[ReadingParams] = param(help=f"the readings, at most {MOST_READINGS}", kw_only=False)
    source: str = param(default=USUAL, help="the harness whose plan it is", kind="source")
    ts: str | None = param(default=None, help="ISO time of the readings (now)")

"""The bar a person watches while burnd takes in the logs that were there before it. The only user of rich."""

from __future__ import annotations

import sys
import time

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

from burnctl.render import duration, number, size
from burnctl.starting import unread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from burnctl.client import Client

_EVERY_S = 0.15


class _Rate(ProgressColumn):
    """How fast it goes and how long it will still take, by burnd's own measure."""

    def render(self, task: Task) -> Text:
        rate = task.fields["rate"]
        if not rate:
            return Text("")
        left = max((task.total or 0) - task.completed, 0) / rate
        return Text(f"{size(rate)}/s, {duration(max(left, 1))} left", style="dim")


def follow(client: Client, status: dict[str, Any], *, color: bool) -> None:
    """Shows the bar until old logs are read or reading is blocked. Ctrl-C ends the bar; burnd reads on."""
    console = Console(stderr=True, no_color=not color or None)
    columns = (
        TextColumn("reading old logs"),
        BarColumn(bar_width=None),
        TextColumn("{task.percentage:>3.0f}%"),
        TextColumn("{task.fields[files]}", style="dim"),
        _Rate(),
    )
    began = time.monotonic()
    try:
        with Progress(*columns, console=console, transient=True, expand=True) as bar:
            task = bar.add_task("", total=None, **_fields(status))
            while (backfill := unread(status)) is not None:
                bar.update(task, total=backfill["total"] or None, completed=backfill["done"], **_fields(status))
                time.sleep(_EVERY_S)
                status = client.status()
    except KeyboardInterrupt:
        print("burnd goes on reading; see how far it is with: burnctl status", file=sys.stderr)
        raise
    if status.get("backfill"):
        return  # blocked: the answer says why
    ledger = status.get("ledger") or {}
    turns = (ledger.get("turns") or 0) + (ledger.get("openTurns") or 0)
    print(f"old logs are taken in: {number(turns)} turns in {duration(time.monotonic() - began)}", file=sys.stderr)


def _fields(status: dict[str, Any]) -> dict[str, Any]:
    sources = status.get("sources") or []
    files = sum(source.get("files") or 0 for source in sources)
    left = sum(source.get("pending") or 0 for source in sources)
    backfill = status.get("backfill") or {}
    return {
        "files": f"{number(max(files - left, 0))} of {number(files)} files" if files else "",
        "rate": backfill.get("bytesPerSecond") or 0,
    }

"""The progress bar while burnd reads the logs that were there before it. The only user of rich."""

from __future__ import annotations

import sys
import time

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

from burnctl.render import clean, counted, duration, size
from burnctl.starting import unread

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from burnctl.client import Client
    from burnd.contract.results.daemon import Status

_EVERY_S = 0.15


class _Rate(ProgressColumn):
    """Bytes per second and the time left, as burnd measures them."""

    def render(self, task: Task) -> Text:
        rate = task.fields["rate"]
        if not rate:
            return Text("")
        left = max((task.total or 0) - task.completed, 0) / rate
        return Text(f"{size(rate)}/s, {duration(max(left, 1))} left", style="dim")


def follow(client: Client, status: Status, *, color: bool, totals: bool = False) -> None:
    """Shows the bar until old logs are read, reading is blocked or `totals` are complete.

    Ctrl-C ends the bar; burnd reads on.
    """
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
            while (backfill := unread(status, totals=totals)) is not None:
                # While totals are added up, nothing is read, and the bar has no length.
                total = None if totals and not backfill["done"] else backfill["total"] or None
                bar.update(task, total=total, completed=backfill["done"], **_fields(status))
                time.sleep(_EVERY_S)
                status = client.status()
    except KeyboardInterrupt:
        print("burnd keeps reading; see the progress with: burnctl status", file=sys.stderr)
        raise
    if (backfill := status.get("backfill")) and (blocked := backfill.get("blocked")):
        print(f"old logs cannot be read: {clean(blocked)}; see: burnctl status", file=sys.stderr)
        return
    if status.get("backfill"):
        return
    ledger = status.get("ledger") or {}
    turns = (ledger.get("turns") or 0) + (ledger.get("openTurns") or 0)
    print(f"read old logs: {counted(turns, 'request')} in {duration(time.monotonic() - began)}", file=sys.stderr)


def _fields(status: Status) -> dict[str, Any]:
    sources = status.get("sources") or []
    files = sum(source.get("files") or 0 for source in sources)
    left = sum(source.get("pending") or 0 for source in sources)
    backfill = status.get("backfill")
    return {
        "files": f"{max(files - left, 0):,} of {files:,} files" if files else "",
        "rate": backfill["bytesPerSecond"] if backfill else 0,
    }

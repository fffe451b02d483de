"""`status`: the state of the daemon and its sources, how much is recorded, and problems with their remedies."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import anyio
import msgspec

from burnd import __version__, protocol
from burnd.contract.daemon import StatusParams
from burnd.errors import IndexDamaged
from burnd.extras import SEARCH, to_install
from burnd.harness.supervisor import SourceSupervisor
from burnd.index.query_pool import TookTooLong
from burnd.queries import status as counting
from burnd.queries.spending import budget_uses
from burnd.recording.source import Progress, SkippedFiles, Status, UnusedLine, backfill_state
from burnd.records.times import to_iso
from burnd.search.indexer import SearchStatus
from burnd.server.method import AnyMethod, Method, Result
from burnd.server.service import Service

_COUNTING_S = 1.0
_UNUSED = "nothing: all others are recorded; please report it, unless another program writes there"
_SEARCH_REMEDIES = {
    True: f"install it with: {to_install(SEARCH)}; then: burnctl restart",
    False: "nothing: it is retried",
}


async def status(service: Service, _params: StatusParams) -> Result:
    """Answers at once, also while the daemon starts, reads old logs or rebuilds its index."""
    counts, machine, budget = await _counts(service), await service.machine(), await _budget(service)
    # No await from here on: all parts of one answer describe the same moment.
    states = [(source, source.status()) for source in service.sources.values()]
    return {
        "daemon": _daemon(service),
        "machine": machine,
        "sources": [_source(source, state) for source, state in states],
        "backfill": _backfill(
            [state for _, state in states], is_exact=service.has_totals, of_pass=_pass_progress(service)
        ),
        "ledger": _ledger(service, counts),
        "content": _content(service, counts),
        "index": {"state": _index_state(service), "bytes": _database_size(str(service.home.index_db))},
        "search": _search(service),
        "causes": _causes(service, counts),
        "spool": _spool(service),
        "disk": _disk(service),
        "prices": _prices(service),
        "budget": budget,
        "lostLogs": _lost_logs(service),
        "degraded": [{"what": what, "remedy": remedy} for what, remedy in _degraded(service, states, counts)],
    }


async def _counts(service: Service) -> counting.Counts:
    """How much is recorded; the last counts if the index is too busy."""
    if service.is_open:
        with anyio.move_on_after(_COUNTING_S), contextlib.suppress(TookTooLong, IndexDamaged):
            service.counts = await service.ask(counting.count, urgent=True)
    return service.counts


async def _budget(service: Service) -> list[dict[str, Any]]:
    """Every budget that is set, with its spend; empty if the index is too busy."""
    budgets = service.settings.budgets
    if budgets and service.is_open:
        with anyio.move_on_after(_COUNTING_S), contextlib.suppress(TookTooLong, IndexDamaged):
            current = await service.ask(lambda view: budget_uses(view, budgets), urgent=True)
            return [standing.answer() for standing in current]
    return []


def _lost_logs(service: Service) -> dict[str, Any]:
    lost = service.lost_logs if service.is_open else None
    return {"sessions": lost.unexplained if lost else 0, "noticedAt": lost.noticed if lost else None}


def _daemon(service: Service) -> dict[str, Any]:
    clients = service.clients
    return {
        "version": __version__,
        "protocol": protocol.VERSION,
        "pid": service.pid,
        "state": _daemon_state(service),
        "startedAt": to_iso(service.started_ms),
        "uptimeMs": max(0, service.now() - service.started_ms),
        "home": str(service.home.root),
        "socket": service.socket,
        "clients": clients.connected,
        "requests": clients.served,
        "clientsTurnedAway": clients.turned_away,
        "clientsRefused": clients.refused,
    }


def _daemon_state(service: Service) -> str:
    if service.stopping.is_set():
        return "stopping"
    return "ready" if service.is_open else "starting"


def _source(source: SourceSupervisor, state: Status) -> dict[str, Any]:
    return {
        "name": source.name,
        "state": state.state,
        "detail": state.detail,
        "files": state.files,
        "pending": state.pending,
        "lagMs": round(state.lag * 1000),
        "restarts": source.restarts,
        "lastFailure": source.last_failure or None,
        "hasLooked": state.has_looked,
        "counts": dict(state.counts),
        "unused": {"count": state.unused.count, "lines": [msgspec.structs.asdict(one) for one in state.unused.lines]},
        "leftAlone": [_skipped(item) for item in state.skipped],
    }


def _skipped(item: SkippedFiles) -> dict[str, Any]:
    return {
        "reason": item.reason,
        "why": item.why,
        "count": item.count,
        "paths": list(item.paths),
        "remedy": item.remedy,
        "isNormal": item.is_normal,
    }


def _pass_progress(service: Service) -> Progress | None:
    return service.early_totals.progress if service.early_totals is not None else None


def _backfill(states: list[Status], *, is_exact: bool, of_pass: Progress | None) -> dict[str, Any] | None:
    """The progress of the backfill in bytes; None when all old logs are read.

    `is_exact`: totals are, nevertheless; `of_pass` is the progress of the pass that makes them so.
    """
    backfill = backfill_state(states)
    if backfill.done:
        return None
    progress = [state.progress for state in states if state.progress is not None]
    return {
        "done": sum(one.done for one in progress),
        "total": sum(one.total for one in progress),
        "bytesPerSecond": round(sum(one.per_second for one in progress)),
        "percent": backfill.percent,
        "secondsLeft": backfill.seconds_left,
        "blocked": backfill.blocked,
        **({"exact": True} if is_exact else {}),
        **({"totals": {"done": of_pass.done, "total": of_pass.total}} if of_pass is not None else {}),
    }


def _ledger(service: Service, counts: counting.Counts) -> dict[str, Any]:
    lines = [skipped._asdict() for skipped in counts.skipped]
    return {
        "bytes": _size(str(service.home.ledger)),
        "turns": counts.turns,
        "openTurns": counts.open_turns,
        "sessions": counts.sessions,
        "stamps": counts.stamps,
        "skipped": {"count": counts.skipped_lines, "lines": lines},
        "refusedRecords": service.pipeline.status.refused if service.is_open else 0,
    }


def _content(service: Service, counts: counting.Counts) -> dict[str, Any]:
    blobs = _database_size(str(service.home.blobs))
    return {
        "mode": service.settings.content_mode,
        "bytes": counts.sidecar_bytes + blobs,
        "sidecars": counts.sidecars,
        "blobBytes": blobs,
    }


def _index_state(service: Service) -> str:
    if not service.is_open:
        return str(service.work)
    rebuilding = service.pipeline.status.rebuilding
    if rebuilding is None:
        return "ready"
    done, total = rebuilding
    return f"rebuilding {100 * done // total if total else 0} %"


def _spool(service: Service) -> dict[str, Any]:
    if not service.is_open:
        return {"claims": 0, "stamps": 0, "bad": 0, "blocked": None}
    spool = service.spool
    return {"claims": spool.pending, "stamps": spool.waiting, "bad": spool.bad, "blocked": spool.blocked or None}


def _search(service: Service) -> dict[str, Any]:
    """The state of the search index; `pending` sessions are not indexed yet."""
    status = service.search_indexer.status() if service.is_open else SearchStatus("starting")
    return {**status._asdict(), "bytes": _folder_size(str(service.home.search))}


def _causes(service: Service, counts: counting.Counts) -> dict[str, Any]:
    """The state of attribution; `pending` rails are not counted yet."""
    return {"state": service.explainer.state if service.is_open else "starting", "pending": counts.uncounted}


def _folder_size(folder: str) -> int:
    return sum(_size(os.path.join(path, name)) for path, _, names in os.walk(folder) for name in names)


def _disk(service: Service) -> dict[str, Any]:
    if not service.is_open:
        return {"free": None, "reserve": None}
    free, reserve = service.pipeline.disk.measure()
    return {"free": free, "reserve": reserve}


def _prices(service: Service) -> dict[str, Any]:
    table = service.prices.table
    return {"asOf": table.as_of, "fetched": table.fetched, "own": table.own, "problem": table.problem or None}


def _degraded(
    service: Service, states: list[tuple[SourceSupervisor, Status]], counts: counting.Counts
) -> Iterator[tuple[str, str]]:
    """Problems, each with its remedy."""
    for source, state in states:
        if state.remedy or state.state == "degraded":
            yield f"{source.name}: {state.detail}", state.remedy or "see the log; it is retried"
        for item in state.skipped:
            if not item.is_normal:
                more = f" (and {item.count - 1:,} more)" if item.count > 1 else ""
                yield f"{source.name}: {item.paths[0]}: {item.why}{more}", item.remedy
        if lost := state.unused.count - state.unused.unfinished:
            yield (
                f"{source.name}: {_unusable(state.unused.lines[0], lost)}: {_place(state.unused.lines[0], lost)}",
                _UNUSED,
            )
    for work in service.background:
        if work.problem:
            yield work.problem, "nothing: recording continues; please report it, the log has the location"
    if service.is_open:
        yield from _degraded_storage(service)
    if counts.skipped_lines:
        yield (
            f"{counts.skipped_lines:,} lines of the ledger cannot be used",
            "restore them from a backup if they were damaged; they are skipped",
        )
    if service.prices.problem:
        yield service.prices.problem, "correct or remove the file"
    if service.settings_problem:
        yield service.settings_problem, "correct it: burnctl config edit"
    yield from service.notices.items()


def _unusable(first: UnusedLine, count: int) -> str:
    what, where = ("line", "logs") if first.row is None else ("row", "databases")
    return f"{count:,} {what}{'s' if count > 1 else ''} of {where} could not be read in full"


def _place(line: UnusedLine, lost: int) -> str:
    more = f", and {lost - 1:,} more" if lost > 1 else ""
    where = (
        f"{line.size:,} bytes from byte {line.offset:,} on" if line.row is None else f"{line.row}, {line.size:,} bytes"
    )
    return f"{line.path}, {where} ({line.reason}){more}"


def _degraded_storage(service: Service) -> Iterator[tuple[str, str]]:
    pipeline, spool = service.pipeline, service.spool
    free, reserve = pipeline.disk.measure()
    if free < reserve:
        yield f"only {free / 1e6:,.0f} MB of disk are free", "free some space; nothing is lost meanwhile"
    if pipeline.index.damaged.is_set():
        yield "the index is damaged and is being rebuilt", "nothing; if it lasts, free some space"
    if pipeline.status.refused:
        yield (
            f"{pipeline.status.refused:,} records could not have been read back and were not written",
            "please report it",
        )
    if pipeline.content.set_aside:
        yield (
            "the file of large content was damaged and was renamed",
            "restore content/blobs.db from a backup while the daemon is stopped",
        )
    if unreadable := pipeline.content.sidecars.unreadable:
        path, reason = next(iter(unreadable.items()))
        more = f", and {len(unreadable) - 1:,} more" if len(unreadable) > 1 else ""
        yield (
            f"the content of a session cannot be read: {path}: {reason}{more}",
            "restore it from a backup while the daemon is stopped; its turns and sums are complete",
        )
    if service.search_indexer.problem and service.search_indexer.status().state == "unavailable":
        yield service.search_indexer.problem, _SEARCH_REMEDIES[service.search_indexer.is_missing]
    for name, skipped in (("search", service.search_indexer.passed_over), ("causes", service.explainer.passed_over)):
        if skipped:
            yield f"{name} {skipped}", "nothing: its turns are recorded; please report it"
    if spool.blocked:
        yield f"the spool cannot be read: {spool.blocked}", "free some space, or correct the folder's permissions"
    bad = spool.folder / "bad"
    for reason in spool.refusals:
        yield (
            f"a stamp was refused: {reason}",
            f"stamp the session again by its whole id, then delete the file in {bad}",
        )
    if spool.bad > len(spool.refusals):
        yield f"{spool.bad:,} files of the spool could not be used", f"look at {bad}, then delete them"


def _database_size(path: str) -> int:
    """The size with the write-ahead log."""
    return _size(path) + _size(f"{path}-wal")


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


METHODS: tuple[AnyMethod, ...] = (Method(StatusParams, status),)

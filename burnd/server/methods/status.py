"""`status`: state of the daemon and its sources, how much is recorded, problems with their remedies."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import anyio
import msgspec

from burnd import __version__, protocol
from burnd.contract.daemon import StatusParams
from burnd.errors import SEARCH, IndexDamaged, to_install
from burnd.harness.supervisor import SourceSupervisor
from burnd.index.query_pool import TookTooLong
from burnd.queries import status as counting
from burnd.queries.spending import budget_uses
from burnd.recording.source import Status, backfill_state
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
    """Answers at once, also while the daemon starts."""
    machine = await service.machine()
    budgets, budget = service.settings.budgets, []
    if service.is_open:  # the last counts and no budgets if the index is busy
        with anyio.move_on_after(_COUNTING_S), contextlib.suppress(TookTooLong, IndexDamaged):
            service.counts = await service.ask(counting.count, urgent=True)
        with anyio.move_on_after(_COUNTING_S), contextlib.suppress(TookTooLong, IndexDamaged):
            current = await service.ask(lambda view: budget_uses(view, budgets), urgent=True) if budgets else []
            budget = [one.answer() for one in current]
    # no await from here on: all parts describe the same moment
    counts, clients, prices = service.counts, service.clients, service.prices.table
    states = [(source, source.status()) for source in service.sources.values()]
    blob_bytes = _database_size(str(service.home.blobs))
    return {
        "daemon": {
            "version": __version__,
            "protocol": protocol.VERSION,
            "pid": service.pid,
            "state": "stopping" if service.stopping.is_set() else "ready" if service.is_open else "starting",
            "startedAt": to_iso(service.started_ms),
            "uptimeMs": max(0, service.now() - service.started_ms),
            "home": str(service.home.root),
            "socket": service.socket,
            "clients": clients.connected,
            "requests": clients.served,
            "clientsTurnedAway": clients.turned_away,
            "clientsRefused": clients.refused,
        },
        "machine": machine,
        "sources": [_source(source, state) for source, state in states],
        "backfill": _backfill(service, [state for _, state in states]),
        "ledger": {
            "bytes": _size(str(service.home.ledger)),
            "turns": counts.turns,
            "openTurns": counts.open_turns,
            "sessions": counts.sessions,
            "stamps": counts.stamps,
            "skipped": {"count": counts.skipped_lines, "lines": [skipped._asdict() for skipped in counts.skipped]},
            "refusedRecords": service.pipeline.status.refused if service.is_open else 0,
        },
        "content": {
            "mode": service.settings.content_mode,
            "bytes": counts.sidecar_bytes + blob_bytes,
            "sidecars": counts.sidecars,
            "blobBytes": blob_bytes,
        },
        **_derived(service),
        "causes": {"state": service.explainer.state if service.is_open else "starting", "pending": counts.uncounted},
        "prices": {
            "asOf": prices.as_of,
            "fetched": prices.fetched,
            "own": prices.own,
            "problem": prices.problem or None,
        },
        "budget": budget,
        "degraded": [{"what": what, "remedy": remedy} for what, remedy in _degraded(service, states, counts)],
    }


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
        "leftAlone": [
            {
                "reason": item.reason,
                "why": item.why,
                "count": item.count,
                "paths": list(item.paths),
                "remedy": item.remedy,
                "isNormal": item.is_normal,
            }
            for item in state.skipped
        ],
    }


def _backfill(service: Service, states: list[Status]) -> dict[str, Any] | None:
    """None when all old logs are read."""
    backfill = backfill_state(states)
    if backfill.done:
        return None
    progress = [state.progress for state in states if state.progress is not None]
    answer: dict[str, Any] = {
        "done": sum(one.done for one in progress),
        "total": sum(one.total for one in progress),
        "bytesPerSecond": round(sum(one.per_second for one in progress)),
        "percent": backfill.percent,
        "secondsLeft": backfill.seconds_left,
        "blocked": backfill.blocked,
    }
    if service.has_totals:
        answer["exact"] = True
    if service.early_totals is not None and (quick_pass := service.early_totals.progress) is not None:
        answer["totals"] = dict(zip(("done", "total"), quick_pass, strict=True))
    return answer


def _derived(service: Service) -> dict[str, Any]:
    files = (os.path.join(path, name) for path, _, names in os.walk(service.home.search) for name in names)
    index_state, search = str(service.work), SearchStatus("starting")
    spool: dict[str, Any] = {"claims": 0, "stamps": 0, "bad": 0, "blocked": None}
    free: int | None = None
    reserve: int | None = None
    lost: dict[str, Any] = {"sessions": 0, "noticedAt": None}
    if service.is_open:
        done, total = service.pipeline.status.rebuilding or (None, 0)
        index_state = "ready" if done is None else f"rebuilding {100 * done // total if total else 0}%"
        search = service.search_indexer.status()
        own = service.spool
        spool = {"claims": own.pending, "stamps": own.waiting, "bad": own.bad, "blocked": own.blocked or None}
        free, reserve = service.pipeline.disk.measure()
        lost = {"sessions": service.lost_logs.unexplained, "noticedAt": service.lost_logs.noticed}
    return {
        "index": {"state": index_state, "bytes": _database_size(str(service.home.index_db))},
        "search": {**search._asdict(), "bytes": sum(map(_size, files))},
        "spool": spool,
        "disk": {"free": free, "reserve": reserve},
        "lostLogs": lost,
    }


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
            line, logs = state.unused.lines[0], state.unused.lines[0].row is None
            what = f"{lost:,} {'line' if logs else 'row'}{'s' if lost > 1 else ''} of {'logs' if logs else 'databases'}"
            size = f"{line.size:,} bytes"
            where = f"{line.path}, {f'{size} from byte {line.offset:,} on' if logs else f'{line.row}, {size}'}"
            more = f", and {lost - 1:,} more" if lost > 1 else ""
            yield f"{source.name}: {what} could not be read in full: {where} ({line.reason}){more}", _UNUSED
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
    if pipeline.content.replaced_count:
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
    for name, skipped in (
        ("search", service.search_indexer.skipped_summary),
        ("causes", service.explainer.skipped_summary),
    ):
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
    return _size(path) + _size(f"{path}-wal")


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


METHODS: tuple[AnyMethod, ...] = (Method(StatusParams, status),)

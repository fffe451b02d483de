"""Handing something to the daemon so that it cannot be lost: a durable answer in time, or a file in the spool."""

from __future__ import annotations

import json

from burnctl import spool
from burnctl.errors import BurnctlError, Failed
from burnd import paths, protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from burnctl.client import Client

# After that the spool is quicker, and whoever spawns sessions does not wait.
ANSWER_S = 2.0
# The daemon understood and said no: it would say no to the spooled file as well.
_NO = {protocol.BAD_PARAMS, protocol.REFUSED, protocol.TOO_LARGE, protocol.NOT_A_REQUEST, protocol.NOT_JSON}
_BATCH_BYTES = protocol.REQUEST_BYTES // 2


class Delivered:
    """How many were `recorded` by the daemon and how many `spooled` for it, and why it was not all of them."""

    __slots__ = ("reason", "recorded", "spooled")

    def __init__(self, recorded: int, spooled: int, reason: str = "") -> None:
        self.recorded, self.spooled, self.reason = recorded, spooled, reason

    def answer(self) -> dict[str, Any]:
        """The same for programs."""
        said = {"version": protocol.VERSION, "state": "recorded", "stamps": self.recorded + self.spooled}
        return said | ({"state": "spooled", "spooled": self.spooled, "reason": self.reason} if self.spooled else {})


def stamps(client: Client, stamps: Sequence[Mapping[str, Any]], timeout: float = ANSWER_S) -> Delivered:
    """Every stamp is durable when this returns. Raises Failed when the daemon refuses, NotSpooled when nobody can."""
    recorded = 0
    for batch in _batches(stamps):
        wire_form = [{key: stamp[key] for key in stamp if key not in ("v", "kind")} for stamp in batch]
        problem = _ask(client, "stamp", {"stamps": wire_form}, timeout)
        if problem is not None:
            rest = stamps[recorded:]
            try:
                spool.put(home(), rest)
            except spool.NotSpooled as error:
                if not recorded:
                    raise
                hint = f"the first {recorded:,} of {len(stamps):,} were recorded, the others were not"
                raise spool.NotSpooled(error.message, hint) from None
            return Delivered(recorded, len(rest), problem.message)
        recorded += len(batch)
    return Delivered(recorded, 0)


def removal(client: Client, stamp: Mapping[str, Any], timeout: float = ANSWER_S) -> Delivered:
    """The removal of tags is durable when this returns. Raises as `stamps` does."""
    params = {"selector": stamp["selector"], "keys": stamp["removes"], "ts": stamp["ts"]}
    problem = _ask(client, "stamps.remove", params, timeout)
    if problem is None:
        return Delivered(1, 0)
    spool.put(home(), [stamp])
    return Delivered(0, 1, problem.message)


def announcement(client: Client, wishes: Mapping[str, Any], since: str, timeout: float = ANSWER_S) -> Delivered:
    """Says what holds for a session `since` then: what was captured meanwhile, against it, goes."""
    said = {"ts": since, **wishes}
    problem = _ask(client, "announce", said, timeout)
    if problem is None:
        return Delivered(1, 0)
    spool.put(home(), [{"v": 1, "kind": "announce", **said}])
    return Delivered(0, 1, problem.message)


def home() -> str:
    try:
        return paths.home_folder()
    except ValueError as error:
        raise BurnctlError(str(error)) from None


def _ask(client: Client, method: str, params: Mapping[str, Any], timeout: float) -> BurnctlError | None:
    """None when the daemon has it for good; else why the spool must take it."""
    if timeout <= 0:
        return BurnctlError("burnd did not answer before")
    try:
        client.call(method, params, timeout=timeout)
    except Failed as error:
        if error.code in _NO:
            raise
        return error
    except BurnctlError as error:
        return error
    return None


def _batches(stamps: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Split so that each fits into one request."""
    batches: list[list[Mapping[str, Any]]] = []
    room = 0
    for stamp in stamps:
        size = len(json.dumps(stamp))
        if size > room:
            batches.append([])
            room = _BATCH_BYTES
        batches[-1].append(stamp)
        room -= size
    return batches

"""`burnctl stamps`: lists, exports or removes tags."""

from __future__ import annotations

import sys

from burnctl import flags
from burnctl.client import Client
from burnctl.daemon import reach
from burnctl.errors import Failed
from burnctl.output import as_json, json_line
from burnctl.render.screen import Screen
from burnctl.render.tables import Column, table
from burnctl.session_choice import whole_id
from burnd import protocol
from burnd.contract import Params, param
from burnd.contract.daemon import ListStampsParams, RangeParams, RemoveStampsParams, SelectorParams

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator
    from typing import Any

HELP = "lists the tags that were given, exports them for another machine, or removes them"
EXAMPLES = (
    "burnctl stamps list --session 0f9c1d2e",
    "burnctl stamps list --tag workflowId=wf-1",
    "burnctl stamps export > stamps.jsonl",
    "burnctl stamp --stdin < stamps.jsonl",
    "burnctl stamps remove --session 0f9c1d2e persona",
)
_PAGE = 1000


class StampsFlags(Params):
    tag: str | None = param(default=None, help="only this tag", metavar="KEY[=VALUE]")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    listing = actions.add_parser("list", help="show them, the oldest first")
    listing.description = "shows tags in the order in which they were recorded"
    export = actions.add_parser("export", help="print them as JSON lines that `burnctl stamp --stdin` takes")
    export.description = (
        "prints tags in the ledger's own form, one JSON object a line, as `burnctl stamp --stdin` takes"
    )
    for action in (listing, export):
        flags.add(action, ListStampsParams, StampsFlags)
    flags.reading(listing)
    flags.add(export, flags.Output, only=("no_start",))
    removing = actions.add_parser("remove", help="remove tags from a session, a part of it or one message")
    removing.description = (
        "removes tags by their keys from the selected requests; a later stamp may set them again. If burnd does not "
        "run or is busy, the removal is spooled and recorded later: once this returns 0, it is on disk"
    )
    flags.place(removing, RemoveStampsParams, "keys", nargs="+")
    flags.add(removing, SelectorParams, RangeParams)
    flags.add(removing, flags.Output, only=("json",))


def run(options: argparse.Namespace) -> int:
    from burnctl import delivery, stamp_record

    if options.action == "remove":
        for word in options.keys:
            key, equals, _ = word.partition("=")
            if equals:
                raise stamp_record.BadStamp(f"{word!r} is not a key", f"name the key alone: {key}")
        selector = stamp_record.selector_of(options.session_id, options.message_id, options.from_ts, options.to_ts)
        removal = stamp_record.removal(selector, options.keys)
        with Client(timeout=delivery.ANSWER_S) as client:
            done = delivery.removal(client, removal)
        if options.json:
            return as_json(done.answer() | {"removes": removal["removes"]})
        if sys.stdout.isatty():
            state = f"removal spooled, to be recorded later: {done.reason}" if done.spooled else "removed"
            print(f"{', '.join(removal['removes'])}: {state}")
        return 0
    stamps = _every(options)
    if options.action == "export":
        for stamp in stamps:
            json_line({"v": 1, "kind": "stamp", **stamp})
        return 0
    if options.json:
        return as_json({"version": protocol.VERSION, "stamps": list(stamps), "next": None})
    return _show(list(stamps), options)


def _every(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """All pages, smaller ones if the stamps are large."""
    client, limit, after = reach(options), _PAGE, None
    filters: dict[str, Any] = {"session": options.session, "message": options.message}
    if options.session:
        filters["session"] = whole_id(client, options.session)
    if options.tag is not None:
        key, equals, value = options.tag.partition("=")
        filters |= {"key": key, "value": value if equals else None}
    while True:
        try:
            page = client.ask(ListStampsParams, {**filters, "limit": limit, "after": after})
        except Failed as error:
            if error.code != protocol.TOO_LARGE or limit == 1:
                raise
            limit //= 2
            continue
        yield from page["stamps"]
        after = page["next"]
        if after is None:
            return


def _show(stamps: list[dict[str, Any]], options: argparse.Namespace) -> int:
    if not stamps:
        print("No tag matches.")
        return 0
    screen = Screen.of(options)
    rows = [_row(stamp) for stamp in stamps]
    columns = [
        Column("time (UTC)", style="dim", drop=2),
        Column("session or message", least=36),
        Column("period", least=10, drop=1),
        Column("tags", least=30),
    ]
    screen.report({}, table(columns, rows, screen))
    return 0


def _row(stamp: dict[str, Any]) -> tuple[str, ...]:
    selector, span = stamp["selector"], stamp["selector"].get("range") or {}
    ends = [(word, span[name]) for word, name, no_end in _ENDS if name in span and not span[name].startswith(no_end)]
    tags = [f"{key}={value}" for key, value in stamp["enrichment"].items()]
    tags += [f"{key} (removed)" for key in stamp.get("removes", ())]
    return (
        _minute(stamp["ts"]),
        selector["messageId"] if "messageId" in selector else selector["sessionId"],
        " ".join(f"{word} {_minute(ts)}" for word, ts in ends),
        " ".join(tags),
    )


_ENDS = (("from", "fromTs", "0001"), ("to", "toTs", "9999"))


def _minute(ts: str) -> str:
    return ts[:16].replace("T", " ")

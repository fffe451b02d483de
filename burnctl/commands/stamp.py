"""`burnctl stamp`: tags requests, past or future, and never loses a tag."""

from __future__ import annotations

import sys

from burnctl import delivery, flags, stamp_record
from burnctl.client import Client
from burnctl.errors import BurnctlError, Failed
from burnctl.output import as_json
from burnd import protocol
from burnd.contract import Params, param
from burnd.contract.daemon import OneStamp, RangeParams, SelectorParams

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse


HELP = (
    "Tags a session, a part of it or one message, before its first request or at any time after. If burnd does not run "
    "or is busy, the tag is spooled and recorded later: once this returns 0, it is on disk."
)
EXAMPLES = (
    "burnctl stamp --session 0f9c1d2e workflowId=wf-1 persona=senior",
    "burnctl stamp --session 0f9c1d2e --from 2026-11-16T08:30:00Z --to 2026-11-16T09:00:00Z step=review",
    "burnctl stamp --message msg_01... verdict=wrong",
    "burnctl stamps export | ssh other burnctl stamp --stdin",
)


class StampFlags(Params):
    stdin: bool = param(default=False, help="read many, one JSON object a line; all are recorded or none")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    flags.place(parser, OneStamp, "enrichment", "tags", nargs="*")
    flags.add(parser, SelectorParams, RangeParams, StampFlags)
    flags.add(parser, flags.Output, only=("json",))


def run(options: argparse.Namespace) -> int:
    if options.stdin:
        if options.tags or options.session_id or options.message_id or options.from_ts or options.to_ts:
            raise stamp_record.BadStamp("with --stdin tags and sessions are in the lines")
        stamps = stamp_record.from_lines(sys.stdin.buffer)
    else:
        selector = stamp_record.selector_of(options.session_id, options.message_id, options.from_ts, options.to_ts)
        stamps = [stamp_record.made(selector, stamp_record.from_words(options.tags))]
    with Client(timeout=delivery.ANSWER_S) as client:
        done = delivery.stamps(client, stamps)
        if options.json:
            return as_json(done.answer())
        if not sys.stdout.isatty():
            return 0
        spooled = f"spooled, to be recorded later: {done.reason}"
        for number, state in ((done.recorded, "recorded"), (done.spooled, spooled)):
            if number:
                print(f"{number} {'stamp' if number == 1 else 'stamps'} {state}")
        if options.session_id and done.recorded:
            try:
                client.sessions_meta(options.session_id)
            except BurnctlError as error:
                if isinstance(error, Failed) and error.code == protocol.NOT_FOUND:
                    print(f"no session {options.session_id!r} is recorded yet; the tag applies to it once it is")
    return 0

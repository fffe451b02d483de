"""Methods of the daemon itself: its state and settings, live turns, stamps and announcements."""

from __future__ import annotations

from burnd.contract import LONG_S, Params, param
from burnd.harness.registry import SOURCES, USUAL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ClassVar

    from burnd.contract.results import daemon as results

CONTENT_MODES = ("full", "hash-only", "off")
MOST_STAMPS = 1000


class StatusParams(Params, method="status"):
    """Shows the state of the daemon and its sources, how much is recorded, and what needs attention."""

    answer: ClassVar[results.Status]


class MethodsParams(Params, method="methods"):
    """Lists every method with its parameters and errors."""

    answer: ClassVar[results.Methods]


class FlushParams(Params, method="flush", deadline=LONG_S):
    """Records everything that is readable now, settles open turns, and returns when that is done."""

    answer: ClassVar[results.Flush]
    session: str | None = param(default=None, help="settle only the open requests of this session", kind="session")


class TailParams(Params, method="tail", errors=("not_found",), deadline=None):
    """Streams turns as they are recorded, and budgets that are exceeded, until the client closes the connection."""

    answer: ClassVar[results.Tail]
    session: str | None = param(default=None, help="only this session", kind="session")
    project: str | None = param(default=None, help="only this project; . is this folder", kind="project")
    source: str | None = param(default=None, help="only this harness", kind="source", choices=SOURCES)


class RebuildParams(Params, method="rebuild", deadline=None, progress=True):
    """Rebuilds the index, or labels turns again."""

    answer: ClassVar[results.Rebuild]
    index: bool = param(default=False, help="rebuild the index from ledger and content")
    reclassify: bool = param(default=False, help="label the requests that have no activity")
    force: bool = param(default=False, help="with --reclassify: label all requests again")


class ConfigParams(Params, method="config.show"):
    """Shows the settings in use, and which of them need a restart to change."""

    answer: ClassVar[results.Config]


class ShutdownParams(Params, method="shutdown"):
    """Stops the daemon."""

    answer: ClassVar[results.Shutdown]


class RangeParams(Params):
    """A time range: from `fromTs` to before `toTs`."""

    from_ts: str = param(help="only requests from this ISO time on", kind="time", flag="--from")
    to_ts: str = param(help="only requests before this ISO time", kind="time", flag="--to")


class SelectorParams(Params):
    """The turns of one message, of a session, or of a session within a time range."""

    session_id: str | None = param(
        default=None, help="a session, with its subagents and child sessions", kind="session", flag="--session"
    )
    message_id: str | None = param(default=None, help="one message", kind="message", flag="--message")
    range: RangeParams | None = param(default=None, help="a time range of the session", flag="")


class OneStamp(Params):
    """Keys and values for the turns that are selected."""

    selector: SelectorParams = param(help="the turns that are stamped", flag="")
    enrichment: dict[str, str] = param(help="tags; of equal keys the last counts", metavar="KEY=VALUE")
    removes: list[str] = param(default=[], help="keys to remove", flag="")
    ts: str | None = param(default=None, help="time of the stamp (now)", flag="")


class StampParams(Params, method="stamp", errors=("refused",)):
    """Records one stamp, or several in `stamps`: all of them or none. Durable when it returns."""

    answer: ClassVar[results.StampResult]
    selector: SelectorParams | None = param(default=None, help="the turns that are stamped", flag="")
    enrichment: dict[str, str] | None = param(default=None, help="keys and values", kind="tag", flag="")
    ts: str | None = param(default=None, help="time of the stamp (now)", flag="")
    stamps: list[OneStamp] | None = param(default=None, help="several stamps instead of one", flag="")


class ListStampsParams(Params, method="stamps.list"):
    """Lists stamps in the order in which they were recorded."""

    answer: ClassVar[results.Stamps]
    session: str | None = param(default=None, help="only tags of this session", kind="session")
    message: str | None = param(default=None, help="only tags of this message", kind="message")
    key: str | None = param(default=None, help="only stamps with this key", flag="")
    value: str | None = param(default=None, help="only stamps with this value of the key", flag="")
    since: str | None = param(default=None, help="recorded from this ISO time on", kind="time", flag="")
    until: str | None = param(default=None, help="recorded before this ISO time", kind="time", flag="")
    limit: int = param(default=100, help="at most this many", kind="count", most=MOST_STAMPS, flag="")
    after: int = param(default=-1, help="`next` of the page before", flag="")


class RemoveStampsParams(Params, method="stamps.remove", errors=("refused",)):
    """Removes tags from the selected turns by recording a stamp for it. Durable when it returns."""

    answer: ClassVar[results.RemovedStamps]
    selector: SelectorParams = param(help="the turns that lose the tags", flag="")
    keys: list[str] = param(help="the keys of the tags to remove", kind="tag-key", metavar="KEY")
    ts: str | None = param(default=None, help="time of the removal (now); stamps after it are not affected", flag="")


class AnnounceParams(Params, method="announce", errors=("refused",)):
    """Announces a session before it begins: what is stored of it, and where its harness logs."""

    answer: ClassVar[results.Announcement]
    session_id: str = param(help="the id of the session", kind="session", kw_only=False)
    source: str = param(default=USUAL, help="its harness", kind="source")
    content_mode: str | None = param(default=None, help="what is stored of its content", choices=CONTENT_MODES)
    roots: list[str] = param(default=[], help="folders in which its harness logs")
    ts: str | None = param(default=None, help="time from which this applies (now)", kind="time")
    is_new: bool | None = param(default=None, help="false if the session is resumed or forked")


class SpoolParams(Params, method="spool"):
    """Reads the spool now: stamps, announcements and claims that clients left while the daemon was down."""

    answer: ClassVar[results.Spool]
    claim: str | None = param(default=None, help="name of a claim whose session is wanted")


class CheckGuardParams(Params, method="guard.check"):
    """Decides whether a session may make its next tool call; hooks of harnesses ask this."""

    answer: ClassVar[results.GuardCheck]
    session: str = param(help="the whole id of the session", kw_only=False)
    tool: str | None = param(default=None, help="the tool of the call")
    subject: str | None = param(default=None, help="the command that the call runs, or the path it works on")
    source: str = param(default=USUAL, help="the harness of the session", kind="source")


class GuardStatusParams(Params, method="guard.status"):
    """Shows the limits of the guard, what is used of them, and which sessions were stopped or allowed."""

    answer: ClassVar[results.GuardStatus]
    session: str | None = param(default=None, help="also what this session has used", kind="session")
    source: str = param(default=USUAL, help="the harness whose 5-hour window it is", kind="source")


class AllowParams(Params, method="guard.allow", errors=("not_found",)):
    """Lets a session continue whatever the limits are."""

    answer: ClassVar[results.GuardAllow]
    session: str = param(help="the session to let continue", kind="session", kw_only=False)
    seconds: int | None = param(default=None, help="for how long (for ever)", least=1)


class SwitchGuardParams(Params, method="guard.switch"):
    """Turns the guard off or on; off, it allows every call."""

    answer: ClassVar[results.GuardSwitch]
    on: bool = param(help="whether it checks calls")

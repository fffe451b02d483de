"""Methods that list, read, search, write and erase sessions."""

from __future__ import annotations

from burnd.contract import LONG_S, Params, param
from burnd.contract.reports import SINCE, TZ, UNTIL
from burnd.harness.api.product import SOURCES as API_SOURCES
from burnd.harness.registry import SOURCES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any as Json
    from typing import ClassVar

    from burnd.contract.results import sessions as results

ROLES = ("user", "assistant", "tool_result", "system")
MOST_SESSIONS = 200
MOST_MESSAGES = 200
MOST_HITS = 20
LAST_HIT = 1000  # of the pages of one search
MOST_WINDOW = 16
MOST_RECORDS = 500
BLOCK_BYTES = 64 << 10
_ID = "a session's id, or the beginning of one"


class _Narrowed(Params):
    """Filters of sessions."""

    project: str | None = param(
        default=None,
        help="only this project: a folder, a git remote or the end of one; . is this folder",
        kind="project",
    )
    source: str | None = param(default=None, help="only this harness", kind="source", choices=SOURCES)
    since: int | str | None = param(default=None, help=SINCE, kind="time")
    until: int | str | None = param(default=None, help=UNTIL, kind="time")
    tz: int | str | None = param(default=None, help=TZ, flag="")


class ListParams(_Narrowed, method="sessions.list", errors=("not_found",), partial=True):
    """Lists sessions, the one written last first."""

    answer: ClassVar[results.Sessions]
    of_totals = ("project", "source", "since", "until", "tz", "limit", "next", "costs")
    agent: str | None = param(default=None, help="only sessions of this agent", kind="agent")
    parent: str | None = param(default=None, help="only sessions that this one started", kind="session")
    limit: int = param(default=50, help="at most this many", kind="count", most=MOST_SESSIONS, clamped=True)
    next: str | None = param(default=None, help="continue after the previous page, with its `next`", metavar="TOKEN")
    costs: bool = param(default=False, help="add what each session spent", flag="")
    gone: bool = param(default=False, help="only sessions whose logs are gone, with when that was noticed")


class MetaParams(Params, method="sessions.meta", errors=("not_found",), partial=True):
    """Shows everything recorded about one session, without its messages."""

    answer: ClassVar[results.Meta]
    id: str = param(help=_ID, kind="session", kw_only=False)


class MessagesParams(Params, method="sessions.messages", errors=("not_found",), partial=True):
    """Returns a page of the messages of a session, along one rail."""

    answer: ClassVar[results.Messages]
    id: str = param(help=_ID, kind="session", kw_only=False)
    offset: int = param(default=0, help="number of the first message", kind="index", flag="--from")
    limit: int = param(default=50, help="at most this many messages", kind="count", most=MOST_MESSAGES, clamped=True)
    rail: str | None = param(default=None, help="the rail of a subagent instead of the main conversation")
    block_bytes: int = param(
        default=BLOCK_BYTES, help="bytes of each long block", most=BLOCK_BYTES, clamped=True, flag=""
    )


class SearchParams(_Narrowed, method="sessions.search", errors=("not_found",), partial=True):
    """Finds sessions by their words: the best message of each, with the messages around it."""

    answer: ClassVar[results.Search]
    query: str = param(help='words to find; "a quoted phrase" must match exactly', metavar="WORD", kw_only=False)
    role: str | None = param(default=None, help="only messages of this role", choices=ROLES)
    tool: str | None = param(default=None, help="only calls of this tool and their results")
    session: str | None = param(default=None, help="only this session", kind="session")
    all: bool = param(default=False, help="every message that matches, not only the best of each session")
    limit: int = param(default=10, help="at most this many hits", kind="count", most=MOST_HITS, clamped=True)
    offset: int = param(default=0, help="skip this many hits, for the next page", kind="index", most=LAST_HIT)
    before: int = param(default=4, help="messages before each hit", kind="index", flag="-B")
    after: int = param(default=4, help=f"messages after each hit, {MOST_WINDOW} in all", kind="index", flag="-A")


class MemoryParams(Params, method="search_memory", partial=True):
    """Finds entries of instruction and memory files, of every project, by their words."""

    answer: ClassVar[results.Memory]
    query: str = param(help='words to find; "a quoted phrase" must match exactly', metavar="WORD", kw_only=False)
    limit: int = param(default=10, help="at most this many entries", kind="count", most=MOST_HITS, clamped=True)


class NewParams(Params, method="sessions.new", errors=("refused",)):
    """Creates a session for a program that calls models itself. Durable when it returns."""

    answer: ClassVar[results.OwnSession]
    agent: str = param(help="the agent that works in it", kw_only=False)
    sender: str = param(help="the program or person that created it", kw_only=False)
    source: str | None = param(default=None, help="the API whose usage it reports", choices=API_SOURCES)
    project: str | None = param(default=None, help="its folder, as an absolute path")
    parent: str | None = param(default=None, help="the session that started it")
    title: str | None = param(default=None, help="its title")


class AppendParams(Params, method="sessions.append", errors=("not_found", "refused"), deadline=LONG_S):
    """Appends messages to a session of `sessions.new`, each once by its id. Durable when it returns."""

    answer: ClassVar[results.Append]
    id: str = param(help="the session's id", kw_only=False)
    messages: Json = param(default=None, help="messages with their content")
    turns: Json = param(default=None, help="responses of which only the usage is known")
    source: str | None = param(default=None, help="the API of their usage objects", choices=API_SOURCES)


class SetParams(Params, method="sessions.set", errors=("not_found", "refused")):
    """Sets the title or summary of a session; an empty one restores the harness's."""

    answer: ClassVar[results.OwnSession]
    id: str = param(help="the session's id", kw_only=False)
    title: str | None = param(default=None, help="the title")
    summary: str | None = param(default=None, help="the summary")


class ReadParams(Params, method="content.read", errors=("not_found", "refused"), partial=True):
    """Returns a page of a session's content records, or of one message, in their original text."""

    answer: ClassVar[results.Content]
    session: str = param(help="the session's id", kind="session", kw_only=False)
    message: str | None = param(default=None, help="only this message")
    offset: int = param(default=0, help="number of the first record", kind="index", least=0)
    limit: int = param(default=50, help="at most this many records", kind="count", most=MOST_RECORDS)


class RecordingParams(Params, method="sessions.recording", errors=("not_found", "refused")):
    """Returns all that is recorded of a session, in pages and never cut, to write its log again."""

    answer: ClassVar[results.Recording]
    id: str = param(help=_ID, kind="session", kw_only=False)
    next: str | None = param(default=None, help="continue after the previous page, with its `next`", metavar="TOKEN")


class PruneParams(Params, method="content.prune", errors=("refused",), deadline=LONG_S):
    """Deletes the content of sessions whose newest record is too old. Usage stays."""

    answer: ClassVar[results.Pruned]
    older_than_days: float | None = param(
        default=None,
        help="age, such as 30d, 12h, 2w (the setting content.retention_days)",
        kind="days",
        flag="--older-than",
    )
    dry_run: bool = param(default=False, help="only show how much it would be")


class ForgetParams(Params, method="content.forget", errors=("not_found", "refused"), deadline=None, progress=True):
    """Erases the content of a session, of a project, or of every session with a text."""

    answer: ClassVar[results.Forgotten]
    session: str | None = param(default=None, help="a session, with its subagents and child sessions", kind="session")
    project: str | None = param(
        default=None, help="every session of a project, in all clones and worktrees; . is this folder", kind="project"
    )
    match: str | None = param(default=None, help="every session that contains this exact text", metavar="TEXT")
    dry_run: bool = param(default=False, help="only show what would be erased", flag="")

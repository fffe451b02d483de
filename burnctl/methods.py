"""One Python method for each method of the socket.

Keyword arguments are the parameters of docs/protocol.md in snake_case; what is None is not sent. Answers are the dicts
that the socket gives, with their `version`. What goes wrong is raised as one of `burnctl.errors`.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any, Unpack

    from burnctl.filters import Filters

LONG_S = 610.0  # what may have to read or write everything there is; burnd itself gives up a little earlier


class Methods:
    """What can be asked of burnd, by name. `call` and `stream` are the two ways of asking."""

    def call(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        heard: Callable[[dict[str, Any]], None] | None = None,
    ) -> dict[str, Any]:
        raise NotImplementedError

    def stream(self, method: str, params: Mapping[str, Any] | None = None) -> Iterator[dict[str, Any]]:
        raise NotImplementedError

    # The daemon

    def status(self) -> dict[str, Any]:
        """What burnd is doing: sources, sizes, what is not as it should be and its remedy."""
        return self.call("status")

    def methods(self) -> dict[str, Any]:
        """Every method with its parameters."""
        return self.call("methods")

    def flush(self, *, session: str | None = None) -> dict[str, Any]:
        """Returns when everything readable now is recorded; with a session only its open turns are settled."""
        return self._ask("flush", LONG_S, session=session)

    def tail(
        self, *, session: str | None = None, project: str | None = None, source: str | None = None
    ) -> Iterator[dict[str, Any]]:
        """Turns as they become visible, until the connection ends (then raises NoAnswer)."""
        return self.stream("tail", _sent({"session": session, "project": project, "source": source}))

    def config_show(self) -> dict[str, Any]:
        """The settings burnd was started with."""
        return self.call("config.show")

    def rebuild(
        self,
        *,
        index: bool | None = None,
        reclassify: bool | None = None,
        force: bool | None = None,
        heard: Callable[[dict[str, Any]], None] | None = None,
    ) -> dict[str, Any]:
        """Builds the index anew, or labels recorded turns: those without a label, or with `force` all of them.

        `heard` is called with each word of how far it has come: `{"done": ..., "total": ...}`.
        """
        params = _sent({"index": index, "reclassify": reclassify, "force": force})
        return self.call("rebuild", params, timeout=LONG_S, heard=heard)

    def shutdown(self) -> dict[str, Any]:
        """Tells burnd to stop."""
        return self.call("shutdown")

    # Stamps (`stamp` itself is the client's: it must not be lost when burnd is down)

    def stamps_list(
        self,
        *,
        session: str | None = None,
        message: str | None = None,
        key: str | None = None,
        value: str | None = None,
        since: str | None = None,
        until: str | None = None,
        limit: int | None = None,
        after: int | None = None,
    ) -> dict[str, Any]:
        """A page of stamps, in the order in which they were made; `next` is the `after` of the next page."""
        chosen = {"session": session, "message": message, "key": key, "value": value}
        return self._ask("stamps.list", **chosen, since=since, until=until, limit=limit, after=after)

    def announce(
        self,
        session_id: str,
        *,
        source: str | None = None,
        content_mode: str | None = None,
        roots: Sequence[str] | None = None,
        ts: str | None = None,
        is_new: bool | None = None,
    ) -> dict[str, Any]:
        """Announces a session: its content mode from `ts` or from now on, and where its harness logs.

        `is_new` is False for a session that is resumed or begins as a copy of another.
        """
        wishes: dict[str, Any] = {"content_mode": content_mode, "ts": ts, "is_new": is_new}
        wishes["roots"] = None if roots is None else list(roots)
        return self._ask("announce", session_id=session_id, source=source, **wishes)

    def spool(self, *, claim: str | None = None) -> dict[str, Any]:
        """Takes in now what was left in the spool; with a claim, says which session it took."""
        return self._ask("spool", claim=claim)

    # Reports

    def summary(
        self,
        *,
        by: str | None = None,
        quality: bool | None = None,
        tree: bool | None = None,
        series: bool | None = None,
        limit: int | None = None,
        **filters: Unpack[Filters],
    ) -> dict[str, Any]:
        """What was spent, added up by model or by whatever else `by` names."""
        return self._ask("summary", by=by, quality=quality, tree=tree, series=series, limit=limit, **filters)

    def compare(
        self,
        *,
        models: str | Sequence[str] | None = None,
        by: str | None = None,
        min_sample: int | None = None,
        what_if: str | None = None,
        **filters: Unpack[Filters],
    ) -> dict[str, Any]:
        """Models, harnesses or values of a tag side by side, on the same activities."""
        return self._ask("compare", models=models, by=by, min_sample=min_sample, what_if=what_if, **filters)

    def why(
        self,
        session: str,
        *,
        turn: int | None = None,
        rail: str | None = None,
        tree: bool | None = None,
        limit: int | None = None,
        since: int | str | None = None,
        until: int | str | None = None,
        tz: int | str | None = None,
    ) -> dict[str, Any]:
        """What each dollar of a session, or of one turn of it, went to: causes that add up to what it cost."""
        chosen = {"turn": turn, "rail": rail, "tree": tree, "limit": limit}
        return self._ask("why", session=session, **chosen, since=since, until=until, tz=tz)

    def hotspots(
        self,
        *,
        by: str | None = None,
        rank: str | None = None,
        limit: int | None = None,
        **filters: Unpack[Filters],
    ) -> dict[str, Any]:
        """What the money went to, over all sessions, by tool, file, command and more; the rows add up to the bill."""
        return self._ask("hotspots", by=by, rank=rank, limit=limit, **filters)

    def by_tool(
        self, *, rank: str | None = None, limit: int | None = None, **filters: Unpack[Filters]
    ) -> dict[str, Any]:
        """What each tool cost, with all that its results cost later on; the rows add up to the bill."""
        return self._ask("by_tool", rank=rank, limit=limit, **filters)

    def waste(
        self,
        *,
        min_cost: float | None = None,
        limit: int | None = None,
        kind: str | None = None,
        per_kind: int | None = None,
        heard: Callable[[dict[str, Any]], None] | None = None,
        **filters: Unpack[Filters],
    ) -> dict[str, Any]:
        """Spending that could have been avoided, with evidence and advice.

        `heard` is called with how far the search has come: `{"done": ..., "total": ...}`.
        """
        chosen = {"min_cost": min_cost, "limit": limit, "kind": kind, "per_kind": per_kind}
        params = _sent({**chosen, **filters})
        return self.call("waste", params, timeout=LONG_S, heard=heard)

    def overhead(
        self, *, heard: Callable[[dict[str, Any]], None] | None = None, **filters: Unpack[Filters]
    ) -> dict[str, Any]:
        """What sessions began with, and what a token of that came to.

        `heard` is called with how far it has come: `{"done": ..., "total": ...}`.
        """
        return self.call("overhead", _sent(filters), timeout=LONG_S, heard=heard)

    def flow(self, session: str, *, limit: int | None = None) -> dict[str, Any]:
        """How a session went: its rails as lanes of steps, with what each called, started and cost."""
        return self._ask("flow", session=session, limit=limit)

    def limits(self, *, source: str | None = None, history: int | None = None) -> dict[str, Any]:
        """What the running windows of a plan and the budgets have used, and the windows before."""
        return self._ask("limits", source=source, history=history)

    def statusline(self, *, session: str | None = None, source: str | None = None) -> dict[str, Any]:
        """The few numbers of a status line."""
        return self._ask("statusline", session=session, source=source)

    def quota(
        self, readings: Sequence[Mapping[str, Any]], *, source: str | None = None, ts: str | None = None
    ) -> dict[str, Any]:
        """Hands over what a provider says of an account's windows."""
        return self._ask("quota", readings=list(readings), source=source, ts=ts)

    def export(
        self,
        *,
        limit: int | None = None,
        after: str | None = None,
        whole_days: bool | None = None,
        **filters: Unpack[Filters],
    ) -> dict[str, Any]:
        """One page of turns with their stamps and cost; `next` is the `after` of the next page."""
        return self._ask("export", limit=limit, after=after, whole_days=whole_days, **filters)

    def pricing_show(self, model: str, *, provider: str | None = None) -> dict[str, Any]:
        """What a model costs, or why it has no price."""
        return self._ask("pricing.show", model=model, provider=provider)

    # Sessions and content

    def sessions_list(
        self,
        *,
        project: str | None = None,
        source: str | None = None,
        since: int | str | None = None,
        until: int | str | None = None,
        tz: int | str | None = None,
        agent: str | None = None,
        parent: str | None = None,
        limit: int | None = None,
        next: str | None = None,  # noqa: A002 - the socket's own name
        costs: bool | None = None,
    ) -> dict[str, Any]:
        """A page of sessions, those written last first; `next` of an answer is the `next` of the next question."""
        chosen = {"project": project, "source": source, "agent": agent, "parent": parent}
        times = {"since": since, "until": until, "tz": tz}
        return self._ask("sessions.list", **chosen, **times, limit=limit, next=next, costs=costs)

    def sessions_meta(self, id: str) -> dict[str, Any]:  # noqa: A002 - the socket's own name
        """All that is known of one session, by its id or as much of its beginning as no other shares."""
        return self._ask("sessions.meta", id=id)

    def sessions_messages(
        self,
        id: str,  # noqa: A002 - the socket's own name
        *,
        offset: int | None = None,
        limit: int | None = None,
        rail: str | None = None,
        block_bytes: int | None = None,
    ) -> dict[str, Any]:
        """A page of a session's messages, along one rail."""
        return self._ask("sessions.messages", id=id, offset=offset, limit=limit, rail=rail, block_bytes=block_bytes)

    def sessions_search(
        self,
        query: str,
        *,
        project: str | None = None,
        source: str | None = None,
        since: int | str | None = None,
        until: int | str | None = None,
        tz: int | str | None = None,
        role: str | None = None,
        tool: str | None = None,
        session: str | None = None,
        all: bool | None = None,  # noqa: A002 - the socket's own name
        limit: int | None = None,
        before: int | None = None,
        after: int | None = None,
    ) -> dict[str, Any]:
        """The messages that match some words best, one for each session, with the messages around them."""
        chosen = {"project": project, "source": source, "role": role, "tool": tool, "session": session}
        shown = {"all": all, "limit": limit, "before": before, "after": after}
        return self._ask("sessions.search", query=query, since=since, until=until, tz=tz, **chosen, **shown)

    def search_memory(self, query: str, *, limit: int | None = None) -> dict[str, Any]:
        """The entries of instruction and memory files of every project that best match some words, each whole."""
        return self._ask("search_memory", query=query, limit=limit)

    def sessions_new(
        self,
        agent: str,
        sender: str,
        *,
        source: str | None = None,
        project: str | None = None,
        parent: str | None = None,
        title: str | None = None,
    ) -> dict[str, Any]:
        """Makes a session for a program that calls models itself."""
        about = {"source": source, "project": project, "parent": parent, "title": title}
        return self._ask("sessions.new", agent=agent, sender=sender, **about)

    def sessions_append(
        self,
        id: str,  # noqa: A002 - the socket's own name
        *,
        messages: Sequence[Mapping[str, Any]] | None = None,
        turns: Sequence[Mapping[str, Any]] | None = None,
        source: str | None = None,
    ) -> dict[str, Any]:
        """Adds messages, and turns of which only the usage is known; each once, by its id."""
        said = None if messages is None else list(messages)
        done = None if turns is None else list(turns)
        return self._ask("sessions.append", LONG_S, id=id, messages=said, turns=done, source=source)

    def sessions_set(
        self,
        id: str,  # noqa: A002 - the socket's own name
        *,
        title: str | None = None,
        summary: str | None = None,
    ) -> dict[str, Any]:
        """Gives a session a title or summary of one's own."""
        return self._ask("sessions.set", id=id, title=title, summary=summary)

    def content_read(
        self, session: str, *, message: str | None = None, offset: int | None = None, limit: int | None = None
    ) -> dict[str, Any]:
        """A page of what was said in a session, or in one message of it."""
        return self._ask("content.read", session=session, message=message, offset=offset, limit=limit)

    def content_prune(self, *, older_than_days: float | None = None, dry_run: bool | None = None) -> dict[str, Any]:
        """Deletes the content of sessions that ended longer ago, or says how much that would be."""
        return self._ask("content.prune", LONG_S, older_than_days=older_than_days, dry_run=dry_run)

    def content_forget(
        self,
        *,
        session: str | None = None,
        project: str | None = None,
        match: str | None = None,
        dry_run: bool | None = None,
        heard: Callable[[dict[str, Any]], None] | None = None,
    ) -> dict[str, Any]:
        """Erases what was said in a session, a project, or wherever a text stands; or says what that would be.

        `heard` is called with how far the search for the text has come: `{"done": ..., "total": ...}`.
        """
        params = _sent({"session": session, "project": project, "match": match, "dry_run": dry_run})
        return self.call("content.forget", params, timeout=LONG_S, heard=heard)

    def _ask(self, method: str, timeout: float | None = None, /, **params: Any) -> dict[str, Any]:
        return self.call(method, _sent(params), timeout=timeout)


def _sent(params: Mapping[str, Any]) -> dict[str, Any]:
    """Names as the socket knows them; what is None is left out."""
    return {_camel(name): value for name, value in params.items() if value is not None}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)

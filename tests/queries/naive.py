"""Specification of `summary` and `compare`: every turn of a folded ledger, one by one, slow and obvious."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from burnd.ledger.journal import Key, lineage
from burnd.pricing import PriceTable, Tokens, terms_text, turn_cost, usd
from burnd.queries.dimensions import MAIN_BRANCHES
from burnd.queries.money import shown_model, shown_provider
from burnd.queries.periods import zone_of
from burnd.records import Compaction, Overhead, Request, Turn, Usage
from burnd.records.times import index_ms, to_ms
from burnd.records.turn import FORKED
from tests.folded import Folded

COMPARED = (
    "turns",
    "costUsd",
    "editTurns",
    "oneShotTurns",
    "oneShotRate",
    "editPrompts",
    "oneShotPrompts",
    "oneShotPromptRate",
    "medianRetries",
)
USAGE = ("input", "output", "reasoning", "cacheRead", "cacheCreate5m", "cacheCreate1h")


class Naive:
    """Knows every turn, open ones too, and answers as `summary` should."""

    def __init__(self, folded: Folded, open_turns: Iterable[Turn], prices: PriceTable) -> None:
        self.folded = folded
        self.prices = prices
        shown = {("turn", t.source, t.message_id): t for t in open_turns}
        self.open = set(shown)
        self.turns: dict[Any, Turn] = {**folded.turns, **shown}
        self.parents = folded._parents()
        self.tags = {key: folded.tags(turn) for key, turn in self.turns.items()}

    def summary(self, by: str, **filters: Any) -> dict[str, Any]:
        chosen = [key for key, turn in self.turns.items() if self.is_chosen(key, turn, filters)]
        rows: defaultdict[Any, list[Any]] = defaultdict(list)
        for key in chosen:
            rows[self.label(by, key, filters.get("tz"))].append(key)
        unpriced = {
            self.model(self.turns[key])
            for key in chosen
            if not self.has_price(self.turns[key]) and self.turns[key].quality != "empty"
        }
        return {
            "totals": self.sums(chosen),
            "rows": {label: self.sums(keys) for label, keys in rows.items()},
            "unpricedModels": sorted(unpriced),
        }

    def sums(self, keys: Iterable[Any]) -> dict[str, Any]:
        turns = [(key, self.turns[key]) for key in keys]
        counted = [(key, turn) for key, turn in turns if turn.quality != "empty"]
        tokens = [sum(values) for values in zip(*(_tokens(turn) for _, turn in turns), strict=True)] or [0] * 6
        units = sum(self.units(turn) for _, turn in turns)
        unpriced = sum(not self.has_price(turn) for _, turn in counted)
        by_harness = [turn for _, turn in counted if self.price(turn) is None and self.has_price(turn)]
        context = tokens[0] + tokens[3] + tokens[4] + tokens[5]
        return {
            "turns": len(counted),
            "openTurns": sum(key in self.open for key, _ in counted),
            "partialTurns": sum(turn.quality == "partial" for _, turn in counted),
            "unpricedTurns": unpriced,
            "emptyTurns": len(turns) - len(counted),
            "usage": dict(zip(USAGE, tokens, strict=True)),
            "costUsd": float(usd(units)) if len(counted) > unpriced or units else None,
            "harnessTurns": len(by_harness),
            "harnessCostUsd": float(usd(sum(map(self.units, by_harness)))) if by_harness else None,
            "cacheHitRate": tokens[3] / context if context else None,
        }

    def compare(self, by: str, **filters: Any) -> dict[str, Any]:
        """The cells of `compare` that have data, and the categories in which only one has any.

        A prompt counts once, in the cell of its first edit, with the retries of its last one.
        """
        turns: defaultdict[Any, list[Any]] = defaultdict(list)
        edits: defaultdict[Any, list[Any]] = defaultdict(list)
        for key, turn in self.turns.items():
            place = (self.label(by, key, None), turn.activity or "none")
            is_chosen = self.is_chosen(key, turn, filters)
            if is_chosen:
                turns[place].append(key)
            if turn.has_edits and turn.prompt_id is not None:
                edit = (_edit_order(turn), place if is_chosen else None, turn.prompt_retries or 0)
                edits[turn.session_id, turn.prompt_id].append(edit)
        retries: defaultdict[Any, list[int]] = defaultdict(list)
        for prompt in edits.values():
            retries[min(prompt, key=lambda edit: edit[0])[1]].append(max(count for *_, count in prompt))
        cells = {place: self._cell(keys, retries[place]) for place, keys in turns.items()}
        cells = {place: cell for place, cell in cells.items() if cell["turns"]}
        having: defaultdict[str, list[Any]] = defaultdict(list)
        for name, category in cells:
            having[category].append(name)
        return {"cells": cells, "lone": {category: names[0] for category, names in having.items() if len(names) == 1}}

    def _cell(self, keys: Iterable[Any], retries: list[int]) -> dict[str, Any]:
        sums = self.sums(keys)
        edits = [turn for key in keys if (turn := self.turns[key]).has_edits and turn.quality != "empty"]
        one_shots = [turn for turn in edits if not turn.retries]
        values = (
            sums["turns"],
            sums["costUsd"],
            len(edits),
            len(one_shots),
            len(one_shots) / len(edits) if edits else None,
            len(retries),
            retries.count(0),
            retries.count(0) / len(retries) if retries else None,
            statistics.median(retries) if retries else None,
        )
        return dict(zip(COMPARED, values, strict=True))

    def price(self, turn: Turn) -> Any:
        return self.prices.find(turn.model, turn.provider)

    def has_price(self, turn: Turn) -> bool:
        return self.price(turn) is not None or self.figure(turn) > 0

    def figure(self, turn: Turn) -> int:
        """Units for a token where the turn's own row states its cost."""
        tokens = sum(_tokens(turn))
        return round(round((turn.stated_usd or 0) * 10**15) / tokens) if tokens else 0

    def units(self, turn: Turn) -> int:
        price = self.price(turn)
        if price is None:
            return self.figure(turn) * sum(_tokens(turn))
        terms = terms_text(turn.speed, turn.service_tier, turn.inference_geo)
        return turn_cost(price, Tokens(*_tokens(turn)), terms, searches=turn.searches)

    def model(self, turn: Turn) -> str:
        return shown_model(self.prices, turn.model, turn.provider)

    def label(self, by: str, key: Any, tz: Any) -> Any:
        turn, tags = self.turns[key], self.tags[key]
        if "," in by:
            return tuple(self.label(one, key, tz) for one in by.split(","))
        if by.startswith("tag:"):
            return tags.get(by.removeprefix("tag:"))
        if by == "agent":
            kind = (turn.subagent.type or "subagent") if turn.subagent else turn.agent
            return tags.get("agentId", tags.get("agent", kind))
        simple: dict[str, Callable[[], Any]] = {
            "model": lambda: self.model(turn),
            "provider": lambda: shown_provider(self.prices, turn.model, turn.provider),
            "project": lambda: turn.project_key or turn.project,
            "branch": lambda: turn.git_branch,
            "session": lambda: turn.session_id,
            "activity": lambda: turn.activity,
            "source": lambda: turn.source,
            "version": lambda: turn.harness_version,
            "pr": lambda: self.pull_request(turn),
            "day": lambda: _local(turn, tz).strftime("%Y-%m-%d"),
            "week": lambda: _local(turn, tz).strftime("%G-W%V"),
            "month": lambda: _local(turn, tz).strftime("%Y-%m"),
            "hour": lambda: _local(turn, tz).replace(minute=0, second=0, microsecond=0).isoformat(timespec="minutes"),
        }
        return simple[by]()

    def pull_request(self, turn: Turn) -> str | None:
        """The last one made from the turn's branch, unless that is a main branch; else the session's only one."""
        linked = sorted(
            (one for one in self.turns.values() if one.pull_request), key=lambda one: (index_ms(one.ts), one.message_id)
        )
        place = (turn.project_key or turn.project, turn.git_branch)
        if None not in place and turn.git_branch not in MAIN_BRANCHES:
            made = [one for one in linked if (one.project_key or one.project, one.git_branch) == place]
            if made:
                return made[-1].pull_request
        for session in reversed(lineage(turn.session_id, self.parents)):
            own = {one.pull_request for one in linked if one.session_id == session}
            if own:
                return own.pop() if len(own) == 1 else None
        return None

    def agent(self, key: Any) -> tuple[bool, str | None]:
        """The agent of a turn: whether a stamp names it, and its name."""
        tags = self.tags[key]
        return "agentId" in tags or "agent" in tags, self.label("agent", key, None)

    def agent_parents(self, **filters: Any) -> dict[Any, Any]:
        """The parent of each agent that has one: by stamps, else by its harness; each turn has a vote."""
        chosen = [key for key, turn in self.turns.items() if self.is_chosen(key, turn, filters)]
        rails: defaultdict[tuple[str | None, str | None], list[Any]] = defaultdict(list)
        for key in chosen:
            rails[self.conversation(key)].append(key)
        main = {rail: _elected(self.agent(key) for key in keys) for rail, keys in rails.items()}
        stamped: defaultdict[Any, list[Any]] = defaultdict(list)
        recorded: defaultdict[Any, list[Any]] = defaultdict(list)
        for key in chosen:
            turn, agent = self.turns[key], self.agent(key)
            parent = self.tags[key].get("parentAgentId")
            if agent[0] and parent not in (None, agent[1]):
                stamped[agent].append((True, parent))
            if self.is_on_main(key):
                above = main.get((self.parents.get(turn.session_id), None))
            else:
                above = main.get((turn.session_id, self.caller(key))) or main.get((turn.session_id, None))
            if above != agent:
                recorded[agent].append(above)
        elected = {agent: _elected(votes) for agent, votes in (recorded | stamped).items()}
        return {agent: parent for agent, parent in elected.items() if parent is not None}

    def conversation(self, key: Any) -> tuple[str | None, str | None]:
        """The session of a turn, and its subagent if it is one's."""
        turn = self.turns[key]
        return turn.session_id, turn.subagent.agent_id if turn.subagent and not self.is_on_main(key) else None

    def caller(self, key: Any) -> str | None:
        """The other subagent of the session that called the subagent of a turn."""
        session, own = self.conversation(key)
        started = self.turns[key].subagent
        calls = [
            subagent
            for other, turn in self.turns.items()
            for one_session, subagent in [self.conversation(other)]
            if one_session == session and subagent not in (None, own)
            if started and any(call.id == started.parent_tool_use_id for call in turn.tool_calls)
        ]
        return min(filter(None, calls), default=None)

    def is_on_main(self, key: Any) -> bool:
        turn = self.turns[key]
        return turn.subagent is None or turn.subagent.agent_id == turn.session_id

    def is_chosen(self, key: Any, turn: Turn, wanted: dict[str, Any]) -> bool:
        tags, ts = self.tags[key], to_ms(turn.ts)
        agents = (turn.subagent.agent_id, turn.subagent.type) if turn.subagent else (turn.agent,)
        checks: dict[str, Callable[[Any], bool]] = {
            "since": lambda since: ts >= since,
            "until": lambda until: ts < until,
            "tz": lambda _: True,
            "project": lambda folder: _is_in(turn.project, folder) or self._same_remote(turn, folder),
            "session": lambda session: session in lineage(turn.session_id, self.parents),
            "workflow": lambda flow: flow in (tags.get("workflowId"), tags.get("workflow")),
            "agent": lambda agent: agent in (tags.get("agentId"), tags.get("agent"), *agents),
            "tags": lambda pairs: all(tags.get(k) == v for k, v in pairs.items()),
            "source": lambda source: turn.source == source,
            "model": lambda model: self.model(turn) == model,
            "provider": lambda who: shown_provider(self.prices, turn.model, turn.provider) == who,
            "branch": lambda branch: turn.git_branch == branch,
            "activity": lambda label: turn.activity == label,
            "version": lambda version: f"{turn.harness_version}.".startswith(f"{version}."),
        }
        return all(checks[name](value) for name, value in wanted.items())

    def _same_remote(self, turn: Turn, folder: str) -> bool:
        """True if a turn was made in a clone of the folder's repository. False if turns were made in the folder and it
        is below another folder of the repository."""
        turns = list(self.turns.values())
        own = {t.project_key for t in turns if _is_in(t.project, folder)} - {None}
        if any(t.project_key in own and t.project != folder and _is_in(folder, t.project) for t in turns):
            return False
        around = {t.project_key for t in turns if _is_in(folder, t.project)}
        return turn.project_key is not None and turn.project_key in around

    def may_be_remembered(self, folder: str) -> bool:
        """True if a since revised turn may have set a fact of its session that affects unlogged usage."""
        said = any(isinstance(entry, Overhead) for entry in self.folded.latest.values())
        return said and not any(f"{folder}/".startswith(f"{turn.project}/") for turn in self.turns.values())

    def unlogged(self) -> dict[str, int]:
        """Harness totals beyond turns, copies and overheads, and requests without a log line."""
        total = dict.fromkeys(USAGE, 0)
        for _, over in self._unlogged():
            for name, tokens in zip(USAGE, over, strict=True):
                total[name] += tokens
        for _, usage in self.requests():
            for name, tokens in zip(USAGE, _usage(usage), strict=True):
                total[name] += tokens
        return total

    def requests(self) -> list[tuple[str, Usage]]:
        """Requests that no log has: by session, the least they used. A compaction may be in a harness's own figure."""
        latest = self.folded.latest.values()
        found = [(one.session_id, one.usage) for one in latest if isinstance(one, Request)]
        beyond = {session_id for session_id, over in self._unlogged() if any(over)}
        for one in latest:
            if isinstance(one, Compaction) and one.source == "claude-code" and not one.copied:
                is_stated = one.session_id in beyond and any(
                    to_ms(state.since or "1970-01-01") <= to_ms(one.ts) <= to_ms(state.ts)
                    for state in latest
                    if isinstance(state, Overhead) and state.session_id == one.session_id and state.models
                )
                if not is_stated:
                    found.append((one.session_id, Usage(cache_read=one.before_tokens or 0)))
        return found

    def _unlogged(self) -> list[tuple[str, list[int]]]:
        """By session and model, what its harness used beyond its log."""
        found = []
        for session_id, model, beyond in self._beyond():
            owners = {self.turns[key].session_id for key in self._copied(session_id) if key in self.turns}
            before = [other for owner, its_model, other in self._beyond() if owner in owners and its_model == model]
            most = [max(values) for values in zip(*before, strict=True)] or [0] * 6
            found.append((session_id, _over(beyond, most)))
        return found

    def _beyond(self) -> list[tuple[str, str, list[int]]]:
        return [
            (session_id, model, _over(stated, self._used(session_id, model)))
            for (session_id, model), stated in self._stated().items()
        ]

    def _stated(self) -> dict[tuple[str, str], list[int]]:
        """By session and model the largest of the running totals since each start, added up.

        Where a start is not stated, a total that is less than the one before began again.
        """
        said = [entry for entry in self.folded.latest.values() if isinstance(entry, Overhead)]
        largest: dict[tuple[str, Any], Overhead] = {}
        last: dict[str, tuple[int, int]] = {}
        for entry in sorted(said, key=lambda entry: to_ms(entry.ts)):
            total = _in_all(entry)
            times, before = last.get(entry.session_id, (0, 0))
            if entry.since is None:
                last[entry.session_id] = times, before = times + (total < before), total
            key = (entry.session_id, entry.since or times)
            largest[key] = max(largest.get(key, entry), entry, key=_in_all)
        stated: defaultdict[tuple[str, str], list[int]] = defaultdict(lambda: [0] * 6)
        for (session_id, _), entry in largest.items():
            for model, usage in entry.models.items():
                stated[session_id, model] = [*map(sum, zip(stated[session_id, model], _usage(usage), strict=True))]
        return stated

    def _copied(self, session_id: str) -> set[Key]:
        copies = [copy for copy in self.folded.copies.values() if copy.session_id == session_id]
        found = {("turn", c.source, c.message_id) for c in copies if c.basis is None or not c.basis.rank & FORKED}
        return {key for key in found if key not in self.turns or self.turns[key].session_id != session_id}

    def _used(self, session_id: str, model: str) -> list[int]:
        copies = self._copied(session_id)
        used = [
            _tokens(turn)
            for key, turn in self.turns.items()
            if (turn.session_id == session_id or key in copies)
            and turn.model.removesuffix("[1m]") == model.removesuffix("[1m]")
        ]
        return [sum(values) for values in zip(*used, strict=True)] or [0] * 6


def _is_in(folder: str | None, other: str | None) -> bool:
    return f"{folder}/".startswith(f"{other}/")


def _elected(votes: Iterable[Any]) -> Any:
    counts = Counter(votes)
    return min(counts, key=lambda one: (-counts[one], one is not None, str(one and one[1])))


def _over(said: list[int], used: list[int]) -> list[int]:
    output = max(0, said[1] + said[2] - used[1] - used[2])
    reasoning = min(output, max(0, said[2] - used[2]))
    writes = max(0, said[4] + said[5] - used[4] - used[5])
    hour = min(writes, max(0, said[5] - used[5]))
    return [max(0, said[0] - used[0]), output - reasoning, reasoning, max(0, said[3] - used[3]), writes - hour, hour]


def _in_all(entry: Overhead) -> int:
    return sum(sum(_usage(usage)) for usage in entry.models.values())


def _usage(usage: Any) -> list[int]:
    return [getattr(usage, name) for name in usage.__struct_fields__]


def _tokens(turn: Turn) -> list[int]:
    return _usage(turn.usage)


def _edit_order(turn: Turn) -> Any:
    at = (to_ms(turn.ts), turn.turn_index, turn.message_id)
    return (turn.prompt_retries is not None, turn.prompt_retries or 0, *at)


def _local(turn: Turn, tz: Any) -> datetime:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=to_ms(turn.ts))).astimezone(zone_of(tz))

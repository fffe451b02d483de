"""Random histories: turns that grow, are revised, change hands or are taken back; stamps, forks, children, totals."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
from hypothesis import strategies as st

from burnd.index.change import Change, OpenTurn
from burnd.index.sums import condense
from burnd.recording.candidate import Batch
from burnd.recording.pipeline import Pipeline
from burnd.records import (
    Basis,
    Compaction,
    Copy,
    Event,
    Overhead,
    Request,
    Selector,
    ServerTools,
    Session,
    Subagent,
    Turn,
    Usage,
)
from burnd.records.times import to_iso
from burnd.records.turn import FORKED, Quality
from tests.make import stamp

HOUR = 3_600_000
DAY = 24 * HOUR
# Around a day on which Berlin's clocks are set back, and one on which they are set forward.
AUTUMN, SPRING = 1_792_886_400_000, 1_774_742_400_000  # 2026-10-25 and 2026-03-29, 00:00 UTC
SESSIONS = ("s0", "s1", "s2", "kid")
MODELS = (
    ("claude-code", "claude-sonnet-4-5-20250929", None),
    ("opencode", "claude-sonnet-4-5", "anthropic"),
    ("opencode", "gemini-2.5-pro", "google"),
    ("claude-code", "claude-opus-9", None),
    ("opencode", "gpt-5", "openai"),
    ("opencode", "house-1", "house"),
)
PLACES = (
    ("/code/a", "host.example/me/a"),
    ("/work/a", "host.example/me/a"),
    ("/work/a/sub", "host.example/me/a"),
    ("/code/b", None),
    (None, None),
)
ACTIVITIES = ("coding", "debugging", "testing", None)
VERSIONS = (None, "2.0.14", "2.1.4")
BRANCHES = ("main", "fix", None)
PULLS = (None, None, None, "https://host.example/me/a/pull/1", "https://host.example/me/a/pull/2")
KEYS = ("workflowId", "workflow", "agentId", "agent", "parentAgentId", "persona")
VALUES = ("x", "y")
ZONES = (None, "Europe/Berlin", "+05:45", "America/Los_Angeles", "Asia/Kathmandu", -570)

times = st.one_of(
    st.integers(AUTUMN - 2 * DAY, AUTUMN + 3 * DAY),
    st.integers(SPRING - DAY, SPRING + 2 * DAY),
    st.integers(AUTUMN // DAY * 96 - 96, AUTUMN // DAY * 96 + 192).map(lambda quarter: quarter * 900_000),
    st.integers(AUTUMN - 400 * DAY, AUTUMN + 400 * DAY),
)
tokens = st.one_of(st.just(0), st.integers(0, 3000), st.integers(190_000, 210_000))
usages = st.builds(
    Usage,
    input=tokens,
    output=tokens,
    reasoning=st.integers(0, 50),
    cache_read=tokens,
    cache_create_5m=tokens,
    cache_create_1h=st.integers(0, 100),
)


@st.composite
def turns(draw: st.DrawFn) -> Turn:
    source, model, provider = draw(st.sampled_from(MODELS))
    project, key = draw(st.sampled_from(PLACES))
    n = draw(st.integers(0, 7))
    quality: Quality = draw(st.sampled_from(("final", "final", "partial", "empty")))
    session = draw(st.sampled_from(SESSIONS))
    agents = (None, None, Subagent(agent_id="a1", type="Explore"), Subagent(agent_id="a2"))
    subagent = draw(
        st.sampled_from(agents if session != "kid" else (*agents, Subagent(agent_id=session, type="general")))
    )
    has_edits = draw(st.sampled_from((None, False, True)))
    return Turn(
        source=source,
        session_id=session,
        rail_id=subagent.agent_id or "main" if subagent and subagent.agent_id != session else "main",
        message_id=f"m{n}",
        turn_index=n,
        ts=to_iso(draw(times)),
        model=model,
        provider=provider,
        project=project,
        project_key=key,
        git_branch=draw(st.sampled_from(BRANCHES)),
        usage=Usage() if quality == "empty" else draw(usages),
        speed=draw(st.sampled_from((None, None, "fast"))),
        stated_usd=draw(st.sampled_from((None, 0.5))) if source == "opencode" else None,
        harness_version=draw(st.sampled_from(VERSIONS)),
        pull_request=draw(st.sampled_from(PULLS)),
        server_tools=draw(st.sampled_from((None, None, ServerTools(search=2, fetch=1)))),
        subagent=subagent,
        agent=draw(st.sampled_from((None, "build", "plan"))) if subagent is None else None,
        stop_reason=draw(st.sampled_from((None, "end_turn", "tool_use"))),
        activity=draw(st.sampled_from(ACTIVITIES)),
        has_edits=has_edits,
        retries=draw(st.sampled_from((None, 0, 1))) if has_edits else None,
        prompt_id=draw(st.sampled_from((None, "p1", "p2"))),
        prompt_retries=draw(st.sampled_from((None, 0, 1, 2))),
        quality=quality,
    )


@st.composite
def stamps(draw: st.DrawFn) -> Any:
    keys = draw(st.sets(st.sampled_from(KEYS), min_size=1))
    tags = {key: draw(st.sampled_from((*VALUES, None))) for key in sorted(keys)}
    given = {key: value for key, value in tags.items() if value is not None}
    made = stamp(draw(st.integers(0, 5)), within=None, removes=sorted(tags.keys() - given.keys()), **given)
    where = draw(st.sampled_from(("session", "session", "message", "range")))
    if where == "message":
        return msgspec.structs.replace(made, selector=_selector(message_id=f"m{draw(st.integers(0, 7))}"))
    session_id = draw(st.sampled_from(SESSIONS))
    if where == "session":
        return msgspec.structs.replace(made, selector=_selector(session_id=session_id))
    begin = draw(times)
    span = {"fromTs": to_iso(begin), "toTs": to_iso(begin + draw(st.integers(1, 3 * DAY)))}
    return msgspec.structs.replace(made, selector=_selector(session_id=session_id, range=span))


def _selector(**facts: Any) -> Selector:
    names = {"session_id": "sessionId", "message_id": "messageId", "range": "range"}
    return msgspec.convert({names[name]: value for name, value in facts.items()}, Selector)


others = st.one_of(
    st.builds(
        lambda child, parent: Session(session_id=child, source="opencode", parent_session_id=parent),
        st.just("kid"),
        st.sampled_from(("s0", "s1")),
    ),
    st.builds(
        lambda model, n, session, rank: Copy(
            source=model[0],
            session_id=session,
            rail_id="main",
            message_id=f"m{n}",
            turn_index=n,
            ts=to_iso(AUTUMN),
            basis=Basis(rank=rank),
        ),
        st.sampled_from(MODELS),
        st.integers(0, 7),
        st.sampled_from(SESSIONS),
        st.sampled_from((0, FORKED)),
    ),
    st.builds(
        lambda session, ts, usage, since: Overhead(
            source="claude-code",
            session_id=session,
            ts=to_iso(ts),
            models={"claude-sonnet-4-5-20250929": usage},
            since=since,
        ),
        st.sampled_from(SESSIONS),
        times,
        usages,
        st.sampled_from((None, to_iso(SPRING), to_iso(AUTUMN))),
    ),
    st.builds(
        lambda session, ts, n, tokens, withdrawn: Request(
            source="claude-code",
            session_id=session,
            rail_id="main",
            id=f"r{n}",
            ts=to_iso(ts),
            model="claude-sonnet-4-5-20250929",
            usage=Usage(cache_read=tokens),
            withdrawn=withdrawn,
        ),
        st.sampled_from(SESSIONS),
        times,
        st.integers(0, 3),
        st.integers(0, 9000),
        st.sampled_from((False, False, True)),
    ),
    st.builds(
        lambda session, ts, n, tokens, copied: Compaction(
            source="claude-code",
            session_id=session,
            rail_id="main",
            id=f"k{n}",
            ts=to_iso(ts),
            before_tokens=tokens,
            copied=copied,
        ),
        st.sampled_from(SESSIONS),
        times,
        st.integers(0, 2),
        st.none() | st.integers(0, 90_000),
        st.sampled_from((False, False, True)),
    ),
    st.builds(
        lambda session, ts, name: Event(
            source="claude-code", session_id=session, rail_id="main", id=f"e-{name}", ts=to_iso(ts), name=name
        ),
        st.sampled_from(SESSIONS),
        times,
        st.sampled_from(("interrupt", "api_error", "retry")),
    ),
)
deeds = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), st.lists(st.one_of(turns(), turns(), turns(), stamps(), others), max_size=8)),
        st.tuples(st.just("open"), st.lists(turns(), max_size=2)),
        st.tuples(st.just("take back"), st.integers(0, 7)),
    ),
    max_size=8,
)


async def live(pipeline: Pipeline, history: list[Any]) -> list[Turn]:
    """Lets a history happen; returns the turns that are still open at its end."""
    still_open: dict[Any, Turn] = {}
    for number, (deed, what) in enumerate(history):
        if number % 2:  # so that some of what is asked later is condensed and some is stale
            await pipeline.index.transact(partial(condense, days=1))
        if deed == "commit":
            await pipeline.commit(Batch(entries=what))
            for entry in what:
                if isinstance(entry, Turn):
                    still_open.pop((entry.source, entry.message_id), None)
        elif deed == "open":
            shown = {(turn.source, turn.message_id): turn for turn in what}
            await pipeline._stores.apply(
                Change(open=[OpenTurn(turn, "claude-code", "/log") for turn in shown.values()])
            )
            still_open |= shown
        else:
            gone = Turn(
                source="opencode",
                session_id="s0",
                rail_id="main",
                message_id=f"m{what}",
                turn_index=what,
                ts=to_iso(AUTUMN),
                model="gpt-5",
                usage=Usage(),
                copy_of="m0",
            )
            await pipeline.commit(Batch(entries=[gone]))
            still_open.pop(("opencode", f"m{what}"), None)
    return list(still_open.values())

"""What Codex tells beside the conversation: the meter, the plan's windows, aborts, rollbacks, names."""

from __future__ import annotations

from typing import Final

import msgspec

from burnd.harness.codex.lines import Happening, RateLimits, ThreadSettings, Window
from burnd.harness.codex.memory import Memory, Spot
from burnd.harness.codex.responses import begin_task, end_task, meter
from burnd.harness.codex.state import SOURCE
from burnd.harness.codex.usage import totals_of
from burnd.records import Content, Quota, Request
from burnd.records.content import MAIN
from burnd.records.session import Window as WindowName
from burnd.records.times import LATEST_MS, to_iso, to_ms

_WINDOWS: Final[dict[int, WindowName]] = {300: "5h", 10080: "7d"}
_ROUNDED_MIN: Final = 5  # some releases told a window's length a minute short
_SAME_RESET_MS: Final = 120_000
_PLAN: Final = "codex"
_FAST: Final = ("priority", "fast")
_CHEAP: Final = ("flex", "batch")
_ERRORS: Final = {"error": "api_error", "stream_error": "retry"}


def read_event(memory: Memory, spot: Spot, event: Happening) -> bool:
    """Whether it was one to be heeded; most repeat what items say."""
    kind = event.type
    if kind == "token_count":
        _read_meter(memory, spot, event)
    elif kind in ("task_started", "turn_started"):
        begin_task(memory, event.turn_id)
    elif kind in ("task_complete", "turn_complete"):
        end_task(memory)
    elif kind == "turn_aborted":
        _abort(memory, spot)
    elif kind == "thread_rolled_back":
        _roll_back(memory, event.num_turns or 0)
    elif kind == "thread_name_updated":
        _name(memory, spot, event.thread_name)
    elif kind == "thread_settings_applied":
        _apply(memory, event.thread_settings or ThreadSettings())
    elif kind in _ERRORS:
        memory.note(spot, _ERRORS[kind])
    else:
        return False
    return True


def _read_meter(memory: Memory, spot: Spot, event: Happening) -> None:
    info = event.info
    if info is not None:
        memory.state.model = info.model or memory.state.model
        meter(memory, spot, totals_of(info.total_token_usage), totals_of(info.last_token_usage))
    if event.rate_limits is not None and not memory.repeats(spot.ts):
        _read_limits(memory, spot, event.rate_limits)


def _apply(memory: Memory, settings: ThreadSettings) -> None:
    memory.state.model = settings.model or memory.state.model
    if settings.service_tier is not msgspec.UNSET:  # what is not said stays as it was
        memory.state.speed = "fast" if settings.service_tier in _FAST else None
        memory.state.service_tier = settings.service_tier if settings.service_tier in _CHEAP else None


def _read_limits(memory: Memory, spot: Spot, limits: RateLimits) -> None:
    """Readings that differ from the last one of their window. Limits beside the plan's have windows of their own."""
    if limits.limit_id not in (None, _PLAN):
        return
    for window in (limits.primary, limits.secondary):
        name = _window_name(window)
        if window is None or name is None or window.used_percent is None:
            continue
        percent, resets = round(window.used_percent, 1), _resets(window, spot.ts)
        known = memory.state.quotas.get(name)
        if known is not None and known[0] == percent and abs(known[1] - resets) <= _SAME_RESET_MS:
            continue
        memory.state.quotas[name] = (percent, resets)
        resets_at = to_iso(resets) if resets else None
        memory.out.quotas.append(
            Quota(ts=spot.ts, source=SOURCE, window=name, used_percent=percent, resets_at=resets_at)
        )


def _window_name(window: Window | None) -> WindowName | None:
    minutes = window.window_minutes if window is not None else None
    if minutes is None:
        return None
    return next((name for length, name in _WINDOWS.items() if abs(length - minutes) <= _ROUNDED_MIN), None)


def _resets(window: Window, ts: str) -> int:
    """When a window ends, in milliseconds; 0 where that is not said."""
    if window.resets_at is not None:
        found = window.resets_at * 1000
    elif window.resets_in_seconds is not None:
        found = to_ms(ts) + window.resets_in_seconds * 1000
    else:
        return 0
    return int(found) if 0 < found < LATEST_MS else 0


def _abort(memory: Memory, spot: Spot) -> None:
    """What was metered of the task stays; a response that was cut short says so."""
    current = memory.current
    if current is not None and not current.final:
        current.stop_reason = "aborted"
        memory.touch(current)
    memory.note(spot, "interrupt")
    end_task(memory)


def _roll_back(memory: Memory, prompts: int) -> None:
    """The newest prompts and all that was done about them are taken out of the context, not off the bill."""
    state = memory.state
    end_task(memory)
    dropped = state.prompts[-prompts:] if prompts > 0 else []
    if dropped:
        state.last_turn = dropped[0].after
        state.prompts = state.prompts[: -len(dropped)]
        state.entering = []


def _name(memory: Memory, spot: Spot, name: str | None) -> None:
    if not name or memory.repeats(spot.ts):
        return
    if memory.state.titles == 0 and memory.state.prompt_count == 1:
        memory.out.requests.append(title_request(memory.session_id, spot.ts))
    memory.out.content.append(
        Content(
            session_id=memory.session_id,
            rail_id=MAIN,
            message_id="title:ai",
            n=memory.state.titles,
            b=0,
            ts=spot.ts,
            role="system",
            kind="title",
            text=name,
        )
    )
    memory.state.titles += 1


def title_request(session_id: str, ts: str) -> Request:
    """The request for a thread's first name, which Codex does not log; its model and usage are unknown.

    A name right after the first prompt was made by a model. One that the user chose that early counts too: the log does
    not tell them apart.
    """
    return Request(source=SOURCE, session_id=session_id, rail_id=MAIN, id=f"title:{session_id}", ts=ts)

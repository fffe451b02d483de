"""Numbers, widths, tables, charts, and text from logs that cannot harm a terminal."""

from __future__ import annotations

import time
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnctl.commands.tail import heading, turn_line
from burnctl.render import screen
from burnctl.render.names import short_id, short_model
from burnctl.render.numbers import (
    ago,
    bar,
    counted,
    date,
    dates,
    duration,
    exact_money,
    money,
    number,
    percent,
    sampled,
    size,
    sparkline,
    use_currency,
)
from burnctl.render.screen import Screen, _has_color
from burnctl.render.tables import Column, table
from burnctl.render.text import clean, cut, pad, width_of

NOW = 1_790_000_000_000


@pytest.mark.parametrize(
    ("usd", "shown"),
    [
        (None, "-"),
        (0, "$0.00"),
        (0.0043, "<$0.01"),
        (0.0051, "$0.01"),
        (0.47, "$0.47"),
        (99.999, "$100.00"),
        (1204.4, "$1,204.40"),
        (1_234_567, "$1,234,567.00"),
        (-2.5, "-$2.50"),
    ],
)
def test_money(usd: float | None, shown: str) -> None:
    """Two decimals, so that points are below each other; what cost a little is never nothing."""
    assert money(usd) == shown


def test_exact_money() -> None:
    """Parts of one request get more decimals where two would make them equal."""
    assert [exact_money(usd) for usd in (None, 0, 0.00001, 0.0043, 0.04, 0.47, 1204.4)] == [
        "-", "$0.00", "<$0.0001", "$0.0043", "$0.0400", "$0.47", "$1,204.40",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("currency", "encoding", "shown"),
    [
        ({"code": "EUR", "rate": 0.5}, "utf-8", "€620.00 <€0.01"),
        ({"code": "EUR", "rate": 0.5}, "ascii", "EUR 620.00 <EUR 0.01"),
        ({"code": "JPY", "rate": 150}, "utf-8", "¥186,000 <¥1"),
        ({"code": "CHF", "rate": 0.9}, "utf-8", "CHF 1,116.00 <CHF 0.01"),
        (None, "utf-8", "$1,240.00 <$0.01"),
    ],
)
def test_currencies(currency: dict[str, Any] | None, encoding: str, shown: str) -> None:
    """Money in the currency of the settings, by the rate that the user gave."""
    use_currency(currency, encoding)
    try:
        assert f"{money(1240)} {money(0.003)}" == shown
    finally:
        use_currency(None)


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (None, "-"),
        (0, "0"),
        (950, "950"),
        (999.6, "1.0k"),
        (8200, "8.2k"),
        (99_940, "99.9k"),
        (99_960, "100k"),
        (999_499, "999k"),
        (999_500, "1.0M"),
        (1_300_000, "1.3M"),
        (1_800_000_000, "1.8B"),
        (7e15, "7,000T"),
        (-8200, "-8.2k"),
    ],
)
def test_numbers(count: float | None, shown: str) -> None:
    assert number(count) == shown


def test_sizes_shares_and_durations() -> None:
    assert [size(n) for n in (0, 950, 8200, 1_300_000, None)] == ["0 B", "950 B", "8.2 kB", "1.3 MB", "-"]
    assert [percent(x) for x in (None, 0, 0.0001, 0.004, 0.05, 0.0996, 0.923, 0.996, 0.9999, 1)] == [
        "-", "0%", "<1%", "<1%", "5%", "10%", "92%", "99%", "99%", "100%",
    ]  # fmt: skip
    assert [duration(s) for s in (None, 0.34, 12, 59.7, 250, 7500, 7200, 86400 * 3 + 3600 * 4, 86400)] == [
        "-", "340 ms", "12 s", "1 min", "4 min", "2 h 5 min", "2 h", "3 d 4 h", "1 d",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(3, "just now"), (42, "42 s ago"), (200, "3 min ago"), (5.5 * 3600, "5 h ago"), (30 * 3600, "yesterday"),
     (12 * 86400, "12 days ago"), (70 * 86400, "Jul 13"), (-5, "just now"), (-300, "in 5 min")],
)  # fmt: skip
def test_relative_times(seconds: float, shown: str) -> None:
    assert ago(NOW - seconds * 1000, NOW) == shown


def test_a_time_may_be_a_timestamp() -> None:
    assert ago("2026-09-21T14:10:20.000Z", NOW) == "3 min ago"
    assert ago(None, NOW) == "-"


@pytest.mark.parametrize(
    ("hostile", "left"),
    [
        ("plain", "plain"),
        ("\x1b]52;c;aGk=\x07title", "title"),
        ("\x1b]0;owned\x1b\\title", "title"),
        ("\x1b]52;never ended", ""),
        ("red \x1b[31;1mtext\x1b[0m", "red text"),
        ("\x1b[2J\x1b[Hgone", "gone"),
        ("\x9b31mred\x9d52;x\x9c.", "red."),
        ("\x1bcreset", "reset"),
        ("\x1b", ""),
        ("a\nb\tc\r\nd", "a b c  d"),
        ("bell\x07 back\x08space \x7f", "bell backspace "),
        ("user\u202egnp.exe\u202c \u2066x\u2069", "usergnp.exe x"),
        ("zero\u200bwidth\ufeff", "zerowidth"),
        ("hidden \U000e0041\U000e0042 tags", "hidden  tags"),
        ("half \ud83d of a pair", "half ? of a pair"),
        ("naïve 日本 👍", "naïve 日本 👍"),
    ],
)
def test_hostile_text_is_disarmed(hostile: str, left: str) -> None:
    """F74: no escape sequence, control or bidi character of a title reaches a terminal."""
    assert clean(hostile) == left


@given(st.text())
def test_whatever_comes_is_clean(text: str) -> None:
    """F74: nothing that is left can move the cursor, change colours, or turn the direction of text."""
    for char in clean(text):
        assert char == " " or unicodedata.category(char) not in ("Cc", "Cs", "Zl", "Zp")
        assert unicodedata.bidirectional(char) not in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")


@pytest.mark.parametrize(
    ("text", "cells"),
    [("abc", 3), ("日本語", 6), ("한국", 4), ("é", 1), ("e\u0301", 1), ("👍", 2), ("👍🏽", 2), ("👩\u200d💻", 2),
     ("❤\ufe0f", 2), ("…", 1), ("\uff46\uff55", 4), ("ﾊﾝｶｸ", 4), ("นี่", 1)],
)  # fmt: skip
def test_widths(text: str, cells: int) -> None:
    """Wide characters count two cells, combining marks none."""
    assert width_of(text) == cells


@given(st.text(), st.integers(1, 30), st.sampled_from(["end", "start", "middle"]))
def test_a_cut_text_fits(text: str, width: int, where: str) -> None:
    shown = cut(text, width, where)
    assert width_of(shown) <= width
    assert shown == text or "…" in shown


def test_where_a_text_is_cut() -> None:
    assert cut("/home/me/work/burnd", 10) == "/home/me/…"
    assert cut("/home/me/work/burnd", 10, "start") == "…ork/burnd"
    assert cut("/home/me/work/burnd", 10, "middle") == "/home…urnd"
    assert cut("日本語", 4) == "日…"
    assert cut("abc", 0) == ""
    assert pad("日本", 6) == "日本  "
    assert pad("12", 5, "right") == "   12"


COLUMNS = [
    Column("model", least=10),
    Column("project", least=8, where="start", drop=1),
    Column("turns", "right"),
    Column("cost", "right", style="bold"),
]
ROWS = [
    ("claude-opus-4-5", "/home/me/work/some-long-project-name", "1,204", "$12.40"),
    ("日本語モデル", "/w", "3", "$0.0043"),
    ("evil\x1b]52;c;aGk=\x07", "\u202e/w", "1", ("-", "dim")),
]
FOOTER = ("total", "", "1,208", "$12.41")


def test_a_table_with_room() -> None:
    assert table(COLUMNS, ROWS, Screen(80), footer=FOOTER).splitlines() == [
        "model            project                               turns     cost",
        "claude-opus-4-5  /home/me/work/some-long-project-name  1,204   $12.40",
        "日本語モデル     /w                                        3  $0.0043",
        "evil             /w                                        1        -",
        "─────────────────────────────────────────────────────────────────────",
        "total                                                  1,208   $12.41",
    ]


def test_a_table_that_must_shrink() -> None:
    """Long cells are cut first, then columns that may go are left out; numbers are never cut."""
    assert table(COLUMNS, ROWS[:1], Screen(44)).splitlines() == [
        "model          project         turns    cost",
        "claude-opus-…  …-project-name  1,204  $12.40",
    ]
    assert table(COLUMNS, ROWS[:1], Screen(30)).splitlines() == [
        "model            turns    cost",
        "claude-opus-4-5  1,204  $12.40",
    ]
    assert table(COLUMNS, ROWS[:1], Screen(22)).splitlines() == [
        "model    turns    cost",
        "claude…  1,204  $12.40",
    ]


def test_a_hidden_column_is_named_below_the_report() -> None:
    screen = Screen(30)
    assert screen.page({}, table(COLUMNS, ROWS[:1], screen)).splitlines()[-1] == "No room for: project."


def test_a_pipe_cuts_and_hides_nothing() -> None:
    screen = Screen(20, is_pipe=True)
    assert table(COLUMNS, ROWS, screen) == table(COLUMNS, ROWS, Screen(200))
    assert screen.page({}, "text") == "text"


def test_one_footnote_line_and_the_rest_behind_a_flag() -> None:
    def page(*, with_notes: bool) -> list[str]:
        screen = Screen(60, with_notes=with_notes)
        screen.footnote("3 requests have no price.")
        screen.note("Harnesses used 8.2k tokens more.")
        return screen.page({}, "text").splitlines()

    assert page(with_notes=False) == ["text", "", "3 requests have no price. More: --notes"]
    assert page(with_notes=True) == ["text", "", "3 requests have no price.", "Harnesses used 8.2k tokens more."]


@pytest.mark.parametrize(
    ("columns", "line"),
    [
        (99, "At least $0.04 (122k tokens) more. No price: 3. No room for: input, output. More: --notes"),
        (80, "Without 4 requests. 3 unpriced. No room for: input, output. More: --notes"),
        (62, "Without 4 requests. 3 unpriced. No room for: input, output."),
        (58, "4 missing. No room for: input, output. More: --notes"),
        (43, "4 missing. No room for: input, output."),
    ],
)
def test_a_footnote_gets_shorter_before_it_takes_a_second_line(columns: int, line: str) -> None:
    """Hidden columns are named in the same line; only a screen too narrow for the shortest form wraps it."""
    screen = Screen(columns)
    screen.footnote("At least $0.04 (122k tokens) more.", "Without 4 requests.", "4 missing.")
    screen.footnote("No price: 3.", "3 unpriced.")
    screen.hide("input")
    screen.hide("output")
    screen.note("Prices are of today.")
    assert screen.page({}, "text").splitlines()[2:] == [line]


def test_a_dropped_column_comes_back_if_it_fits() -> None:
    """The widest column makes room for the narrow one that was dropped before it."""
    columns = [Column("model"), Column("in", "right", drop=2), Column("cache write", "right", drop=1)]
    screen = Screen(14)
    assert table(columns, [("opus-4-5", "1", "2")], screen).splitlines() == ["model     in", "opus-4-5   1"]


def test_a_partial_answer_reports_it_first() -> None:
    backfill = {"done": False, "percent": 32, "secondsLeft": 8}
    assert Screen(100).page({"backfill": backfill}, "text").splitlines() == [
        "Reading old logs: 32%, about 8 s left. Totals are not complete yet.", "", "text",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("environment", "is_terminal", "has_color"),
    [
        ({"TERM": "xterm"}, True, True),
        ({"TERM": "xterm"}, False, False),
        ({"TERM": "dumb"}, True, False),
        ({"TERM": "xterm", "NO_COLOR": "1"}, True, False),
        ({"TERM": "xterm", "NO_COLOR": ""}, True, True),
        ({"FORCE_COLOR": "1"}, False, True),
        ({"FORCE_COLOR": "0"}, False, False),
        ({"CLICOLOR_FORCE": "1"}, False, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False, False),
        ({"TERM": "xterm", "CLICOLOR": "0"}, True, False),
    ],
)
def test_when_there_is_colour(
    environment: dict[str, str], is_terminal: bool, has_color: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TERM", "NO_COLOR", "FORCE_COLOR", "CLICOLOR", "CLICOLOR_FORCE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert _has_color(is_terminal=is_terminal, is_off=False) is has_color
    assert not _has_color(is_terminal=is_terminal, is_off=True)


def test_dates_of_a_column_have_one_style() -> None:
    year = 365 * 86400 * 1000
    assert (date(NOW, NOW), date(NOW - year, NOW)) == ("Sep 21", "Sep 21 2025")
    assert dates([NOW - year, NOW], NOW) == ["Sep 21 2025", "Sep 21 2026"]
    assert dates([NOW - 15 * 86_400_000, NOW], NOW) == ["Sep  6", "Sep 21"]


def test_a_table_in_colour() -> None:
    lines = table(COLUMNS, ROWS[1:2], Screen(80, color=True)).splitlines()
    assert lines[0].startswith("\x1b[1mmodel\x1b[0m")
    assert lines[1].endswith("\x1b[1m$0.0043\x1b[0m")


@given(st.lists(st.tuples(st.text(), st.text(), st.integers(), st.integers()), max_size=5), st.integers(20, 160))
def test_no_line_is_wider_than_the_screen(rows: list[tuple[str, str, int, int]], width: int) -> None:
    columns = [
        Column("a", least=3),
        Column("b", least=3, drop=1),
        Column("n", "right", drop=2),
        Column("m", "right", least=2),
    ]
    for line in table(columns, rows, Screen(width)).splitlines():
        assert width_of(line) <= width


def test_charts() -> None:
    assert sparkline([0, 1, 2, 4, 8]) == "▁▁▂▄█"
    assert sparkline([1, None, 1]) == "█ █"
    assert sparkline([]) == ""
    assert sampled([0] * 99 + [100], 10) == [0] * 9 + [100]
    assert sampled([1, 2], 10) == [1, 2]
    assert bar(5, 10, 10) == "█████     "
    assert bar(0.001, 10, 4) == "▏   "
    assert bar(0, 0, 3) == "   "
    assert bar(20, 10, 3) == "███"


TURN = {
    "ts": "2026-09-21T14:10:20.000Z",
    "source": "claude-code",
    "sessionId": "0f9c12ab-1111-4222-8333-444455556666",
    "project": "/home/me/work/bur\x1b[31mnd",
    "model": "claude-opus-4-5-20251101",
    "usage": {
        "input": 10,
        "output": 1200,
        "reasoning": 0,
        "cacheRead": 90_000,
        "cacheCreate5m": 8000,
        "cacheCreate1h": 0,
    },
    "costUsd": 0.1251,
    "activity": "coding",
    "toolCalls": [{"name": "Read"}, {"name": "Read"}, {"name": "Edit", "isError": True}],
}


def test_a_turn_on_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    narrow, wide = Screen(80), Screen(160)
    assert [heading(narrow), turn_line(TURN, narrow)] == [
        "time     project    session      model           input output cached      cost",
        "14:10:20 burnd      0f9c12ab     opus-4-5        98.0k   1.2k    92%     $0.13",
    ]
    assert turn_line(TURN, wide).endswith("$0.13 coding        Read x2 Edit!")
    assert max(len(turn_line(TURN, screen)) for screen in (narrow, wide)) <= 160


def test_names_are_short_and_can_be_typed_back() -> None:
    assert short_id("ses_5f3a91bc0ffexyz") == "ses_5f3a91bc"
    assert short_id("0f9c12ab-1111") == "0f9c12ab"
    assert short_model("anthropic/claude-opus-4-5-20251101") == "opus-4-5"
    assert short_model("gpt-5") == "gpt-5"
    assert short_model(None) == ""


def test_plots_are_readable_in_ascii() -> None:
    """Longer bars stay longer and columns stay in place where an encoding has none of our signs."""
    screen.register_ascii()
    drawn = [bar(value, 8, 8) + "|" for value in (1, 4, 8)]
    told = [text.encode("ascii", screen.ASCII_HANDLER).decode() for text in [*drawn, sparkline([0, 1, 8]), "“重”…"]]
    assert told == ["#       |", "####    |", "########|", "__#", '"?"~']


def test_counts_agree_with_their_noun() -> None:
    assert (counted(1, "turn"), counted(0, "turn"), counted(1204, "turn")) == ("1 turn", "0 turns", "1,204 turns")


def test_a_terminal_gets_no_control_characters_in_csv(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from burnctl.output import as_csv

    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    as_csv([{"model": "a\x1b]52;c;eA==\x07b\x1b[31m", "turns": 1}], {})
    assert capsys.readouterr().out == "model,turns\nab,1\n"

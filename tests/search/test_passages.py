"""Passages: the part of a text that is shown around matches."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnd.search.passages import SNIPPET_BYTES, Spotter, folded, passage
from burnd.tokens.words import analyzer, spaced


def test_a_short_text_is_shown_whole() -> None:
    """Text that fits is not cut, and matching words are marked."""
    text = "  the cron job runs twice\n"
    shown = passage(text, Spotter(["cron"]).spots(text))
    assert shown.text == "the cron job runs twice"
    assert not shown.truncated
    assert [shown.text[a:b] for a, b in shown.highlights] == ["cron"]


def test_the_passage_around_the_words_is_shown() -> None:
    """Of a long text the part with the most different words that were looked for."""
    text = "alpha " + "filler " * 1000 + "here alpha meets beta " + "filler " * 1000 + "beta"
    shown = passage(text, Spotter(["alpha", "beta"]).spots(text))
    assert "alpha meets beta" in shown.text
    assert shown.truncated
    assert shown.text.startswith("…")
    assert shown.text.endswith("…")
    assert len(shown.text.encode()) <= SNIPPET_BYTES
    assert [shown.text[a:b] for a, b in shown.highlights] == ["alpha", "beta"]


@pytest.mark.parametrize(
    ("text", "words", "expected"),
    [
        ("getUserName and user_name", ["user", "name"], ["User", "Name", "user", "name"]),
        ("username", ["user"], []),
        ("HTTPServer", ["server", "http"], ["HTTP", "Server"]),
        ("HTTPServer2 server2 TS2322", ["server", "2322"], ["Server", "2322"]),
        ("Crème BRÛLÉE", ["creme", "brulee"], ["Crème", "BRÛLÉE"]),
        ("重构定时任务", ["定时"], ["定时"]),
        ("ok ✅ done", ["✅"], ["✅"]),
        ("a.b(c)", ["b"], ["b"]),
        ("Die Straße, STRASSE", ["strasse"], ["Straße", "STRASSE"]),
        ("der Œuvre von Søren", ["oeuvre", "soren", "von"], ["Œuvre", "von", "Søren"]),
        ("un e\u0301tudiant nai\u0308f", ["etudiant", "naif"], ["e\u0301tudiant", "nai\u0308f"]),
        ("ﬁnally a ﬁle", ["file"], ["ﬁle"]),
        ("район и Ёлка", ["раион", "елка"], ["район", "Ёлка"]),
        ("район, за́мок", ["раион", "замок"], ["район", "за́мок"]),
        ("Τόνος ΟΔΟΣ", ["τονοσ", "οδοσ"], ["Τόνος", "ΟΔΟΣ"]),
        ("هذا كِتَابٌ جديد", ["كتاب", "جديد"], ["كِتَابٌ", "جديد"]),
        ("오늘 한국어 문서", ["한국"], ["한국"]),
        ("ドキュメント", ["ドキ"], ["ドキ"]),
    ],
)
def test_words_are_marked_where_they_stand(text: str, words: list[str], expected: list[str]) -> None:
    """Whole words and parts of camelCase ones are marked, ignoring case and accents."""
    assert [text[a:b] for a, b in Spotter(words).spots(text)] == expected


@pytest.mark.parametrize(
    ("phrase", "text", "stands"),
    [
        ("step three", "Step  three of", True),
        ("step three", "step-three", True),
        ("step three", "three step", False),
        ("step three", "step and three", False),
        ("step three", "misstep three", False),
        ("step three", "step threefold", False),
        ("resolve_dirs(config)", "call resolve_dirs( config ) now", True),
        ("定时任务", "重构定时任务", True),
        ("定时 任务", "定时任务", True),
        ("ship it 🚀", "ship it 🚀 now", True),
        ("été naïf", "Ete naif", True),
        ("große strasse", "die Grosse Straße hier", True),
        ("한국어 문서", "오늘 한국어 문서", True),
        ("ελληνικα οδος", "τα Ελληνικά, ΟΔΟΣ", True),
        ("елка и еж", "Ёлка и ёж", True),
        ("한국어", "학교에", False),
    ],
)
def test_words_of_a_phrase_are_adjacent(phrase: str, text: str, stands: bool) -> None:
    """Its words are next to each other, in order, with nothing but punctuation between them."""
    assert Spotter([], [phrase]).has_phrases(text) is stands


@given(st.text(max_size=3000), st.lists(st.text(max_size=5), max_size=4), st.lists(st.text(max_size=9), max_size=2))
def test_any_text_makes_a_passage_within_bounds(text: str, words: list[str], phrases: list[str]) -> None:
    """Nothing that is typed or shown breaks the limit or the marks."""
    spotter = Spotter(words, phrases)
    spotter.has_phrases(text)
    shown = passage(text, spotter.spots(text), 64)
    assert len(shown.text.encode("utf-8", "replace")) <= 64
    assert all(0 <= a < b <= len(shown.text) for a, b in shown.highlights)


@given(st.text(st.characters(codec="utf-8"), max_size=40))
def test_a_text_is_folded_as_the_index_does(text: str) -> None:
    """Every word of the index, apart from parts and pairs, is in the folded text and can be marked."""
    plain = folded(text)
    for word in analyzer().analyze(spaced(text)):
        if not word.startswith("emoji"):
            assert word in plain


def test_a_long_text_with_one_odd_letter_costs_little() -> None:
    """Places are kept for the letters that need it, not for all."""
    text = "words of a text " * 100_000 + "Straße"
    (spot,) = Spotter(["strasse"]).spots(text)
    assert text[spot[0] : spot[1]] == "Straße"

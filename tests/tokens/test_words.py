"""Splits text into words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnd.tokens.words import LONGEST_WORD, analyzer, camel_parts, spaced, spelled_out

ANALYZER = analyzer()


def words(text: str) -> set[str]:
    return {word for words in spelled_out(text) for word in words.split() if len(word.encode()) <= LONGEST_WORD}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("resolve_dirs(config)", {"resolve", "dirs", "config"}),
        ("foo-bar", {"foo", "bar"}),
        ("one\ntwo\tthree", {"one", "two", "three"}),
        ("/srv/app/main.py:12", {"srv", "app", "main", "py", "12"}),
        ("getUserName", {"getusername", "get", "user", "name"}),
        ("HTTPServer parseURL utf8String", {"httpserver", "http", "server", "parseurl", "parse", "url", "utf8string"}),
        ("HTTPServer2 TS2322", {"httpserver2", "http", "server2", "server", "ts", "2322"}),
        ("error E0308: ERR_CONNECTION_REFUSED -32700", {"e0308", "err", "connection", "refused", "32700"}),
        ("Crème brûlée naïve Ångström", {"creme", "brulee", "naive", "angstrom"}),
        ("cafe\u0301", {"cafe"}),
        ("重构定时任务", {"重", "重构", "定时", "任务", "构定"}),
        ("用cron重构", {"cron", "用", "重构"}),
        ("テスト 한국어", {"テス", "スト", "한국", "국어"}),
        ("done ✅ and 🚀", {"done", "emoji2705", "emoji1f680"}),
        ("a→b — c", {"a", "b", "c"}),
    ],
)
def test_every_form_of_a_word_is_found(text: str, expected: set[str]) -> None:
    """Parts and wholes, accents, scripts without spaces and emoji all become words."""
    assert expected <= words(text)


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("ελληνικα", "Ελληνικά"),
        ("οδος", "ΟΔΟΣ"),
        ("ΆΝΘΡΩΠΟΣ", "ανθρωπος"),
        ("елка", "ёлка"),
        ("замок", "за́мок"),
        ("כתב", "כָּתַב"),
        ("كتاب", "كِتَابٌ"),
        ("اسلام", "إسلام"),
        ("محمد", "مـحـمـد"),
        ("ժեւ", "ԺԵՒ"),
    ],
)
def test_accents_and_case_of_every_script_are_passed_over(typed: str, said: str) -> None:
    """Either spelling finds the other."""
    assert words(typed) == words(said) != set()


@pytest.mark.parametrize(("one", "other"), [("がき", "かき"), ("한국", "하국"), ("हिन्दी", "हन्द"), ("ที่", "ท")])
def test_signs_that_make_the_letter_are_kept(one: str, other: str) -> None:
    """In kana, Hangul, Devanagari or Thai a mark is no accent: without it, it is another word."""
    assert words(one) != words(other)


@pytest.mark.parametrize("text", ["", "  ", "?!", "-> != ==", "___", "\u200b", "…"])
def test_punctuation_has_no_words(text: str) -> None:
    """A word has a letter, digit or emoji."""
    assert words(text) == set()


def test_words_of_one_part_are_not_repeated() -> None:
    """Only camelCase words are spelled out: the others are in the text itself."""
    assert camel_parts("plain WORDS Capital snake_case kebab-case") == ""
    assert sorted(camel_parts("x fooBar y").split()) == ["Bar", "foo"]


def test_a_monstrous_word_is_no_word() -> None:
    """A run of letters that no person would type does not fill the index."""
    assert words("x" * 300 + " fooBar" * 3) == {"foobar", "foo", "bar"}
    assert "y" * 255 in words("y" * 255)


@given(st.text())
def test_any_text_becomes_words(text: str) -> None:
    """No text makes the word rules fail, and every ASCII word of it is found."""
    found = words(text)
    for word in "".join(c if c.isascii() and c.isalnum() else " " for c in text).split():
        if text.isascii():
            assert word.lower() in found


@given(st.text(st.characters(codec="utf-8")) | st.text(st.characters(codec="utf-8", min_codepoint=0x80)))
def test_words_of_texts_are_those_of_queries(text: str) -> None:
    """A word of a query and the same word of a text are normalised alike."""
    asked = ANALYZER.analyze(spaced(text))
    assert set(asked) <= words(text) <= {*asked, *ANALYZER.analyze(camel_parts(text))}


def test_no_symbol_is_part_of_a_word() -> None:
    """No character of the skipped symbol blocks is part of a word."""
    for code in (*range(0x80, 0x100), *range(0x2000, 0x3000), *range(0xF000, 0x10000)):
        char = chr(code)
        assert words(f"a{char}b") == set(ANALYZER.analyze(spaced(f"a{char}b"))), hex(code)


def test_every_word_carries_its_sign() -> None:
    """Words of prompts, calls, titles and summaries are distinct from those of answers, parts of words too."""
    assert spelled_out("fooBar, a", "#") == ("#foobar #a", "#foo #bar")
    assert spelled_out("Cr\u00e8me", "#") == ("#creme",)
    assert spelled_out(" ?! ", "#") == ()


@given(st.lists(st.sampled_from(["foo", "Bar", "HTTP", "x", "重", "é", "_", " ", "9", "🚀"]), max_size=12))
def test_camel_parts_come_from_the_text(pieces: list[str]) -> None:
    """Parts are cut out of the text's own letters, never made up."""
    text = "".join(pieces)
    letters = "".join(c for c in text if c.isascii() and c.isalnum())
    assert all(part in letters for part in camel_parts(text).split())

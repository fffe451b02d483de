"""How text becomes words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnd.search.engine import analyzer
from burnd.search.words import camel_parts, spelled_out

ANALYZER = analyzer()


def words(text: str) -> set[str]:
    plain, parts = spelled_out(text)
    return {*ANALYZER.analyze(plain), *ANALYZER.analyze(parts)}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("resolve_dirs(config)", {"resolve", "dirs", "config"}),
        ("foo-bar", {"foo", "bar"}),
        ("one\ntwo\tthree", {"one", "two", "three"}),
        ("/srv/app/main.py:12", {"srv", "app", "main", "py", "12"}),
        ("getUserName", {"getusername", "get", "user", "name"}),
        ("HTTPServer parseURL utf8String", {"httpserver", "http", "server", "parseurl", "parse", "url", "utf8string"}),
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


@pytest.mark.parametrize("text", ["", "  ", "?!", "-> != ==", "___", "\u200b", "…"])
def test_punctuation_has_no_words(text: str) -> None:
    """What holds no letter, digit or emoji is not looked for."""
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


@given(st.lists(st.sampled_from(["foo", "Bar", "HTTP", "x", "重", "é", "_", " ", "9", "🚀"]), max_size=12))
def test_camel_parts_come_from_the_text(pieces: list[str]) -> None:
    """Parts are cut out of the text's own letters, never made up."""
    text = "".join(pieces)
    letters = "".join(c for c in text if c.isascii() and c.isalnum())
    assert all(part in letters for part in camel_parts(text).split())

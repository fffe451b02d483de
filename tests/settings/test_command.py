"""Changes one setting: its line changes, and nothing else in the file."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from burnd.errors import ConfigError
from burnd.paths import Home
from burnd.settings import config
from burnd.settings.command import set_value, with_value

MINE = """\
# my own notes
[content]
store = "full"   # everything, for now
# the rest of this table is unchanged

[claude]
roots = [
    "/a",  # at work
    "/b",
]
[disk]
reserve = 'auto'
"""


def written(home: Home, text: str) -> Path:
    home.root.mkdir(parents=True, exist_ok=True)
    home.config.write_text(text)
    return home.config


def test_a_value_changes_and_its_comment_stays(home: Home) -> None:
    path = written(home, MINE)
    change = set_value(home, "content.store", "off")
    assert path.read_text() == MINE.replace('store = "full" ', 'store = "off" ')
    assert (change.before, change.value) == ("full", "off")


def test_a_list_over_several_lines_is_replaced_whole(home: Home) -> None:
    path = written(home, MINE)
    set_value(home, "claude.roots", '["/c"]')
    assert path.read_text() == MINE.replace('roots = [\n    "/a",  # at work\n    "/b",\n]', 'roots = [\n    "/c",\n]')


def test_a_key_that_is_missing_joins_its_table(home: Home) -> None:
    path = written(home, MINE)
    set_value(home, "content.retention_days", "30")
    assert path.read_text() == MINE.replace("# everything, for now\n", "# everything, for now\nretention_days = 30\n")


def test_a_table_that_is_missing_comes_last(home: Home) -> None:
    path = written(home, MINE.rstrip("\n"))
    set_value(home, "log.level", "debug")
    assert path.read_text() == MINE + '\n[log]\nlevel = "debug"\n'


def test_without_a_file_one_with_every_default_is_made(home: Home) -> None:
    set_value(home, "content.retention_days", "forever")
    said = tomllib.loads(home.config.read_text())
    assert said["content"] == {"store": "full", "retention_days": "forever", "inline_bytes": 512}
    assert home.config.stat().st_mode & 0o777 == 0o600
    assert home.config.read_text().replace('"forever"', "90", 1).count("#") >= config.template().count("#") - 1


def test_a_link_into_dotfiles_stays_a_link(home: Home, tmp_path: Path) -> None:
    home.root.mkdir()
    real = tmp_path / "dotfiles.toml"
    real.write_text(MINE)
    home.config.symlink_to(real)
    set_value(home, "content.store", "off")
    assert home.config.is_symlink()
    assert 'store = "off"' in real.read_text()


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("content.store", "off", "off"),
        ("content.store", '"off"', "off"),
        ("content.retention_days", "30", 30),
        ("content.retention_days", "-1", "forever"),
        ("content.retention_days", "0.5", 0.5),
        ("socket.allow_root", "true", True),
        ("disk.reserve", "1_000_000", 1_000_000),
        ("log.file", "burnd.log", "burnd.log"),
        ("log.file", "2026", "2026"),
        ("log.file", "a # b", "a # b"),
        ("claude.roots", "[]", []),
    ],
)
def test_words_are_understood(home: Home, key: str, text: str, value: Any) -> None:
    """A value is TOML, or else a plain word."""
    set_value(home, key, text)
    assert config.load(home, {}).values[key] == value


@pytest.mark.parametrize(
    ("key", "text", "reason"),
    [
        ("content.store", "some", 'must be "full"'),
        ("content.sotre", "off", "did you mean content.store"),
        ("content", "off", "is not a setting"),
        ("content.retention_days", "soon", "number of days"),
        ("claude.roots", "/a", "list of folders"),
        ("content.inline_bytes", "1\nstore = 'off'", "whole number"),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_changes(home: Home, key: str, text: str, reason: str) -> None:
    path = written(home, MINE)
    with pytest.raises(ConfigError, match=reason):
        set_value(home, key, text)
    assert path.read_text() == MINE


@pytest.mark.parametrize(
    "text",
    ['content = {store = "full"}\n', 'content.store = "full"\n', '[content]\nstore = """\nfull"""\n[content.x]\n'],
)
def test_a_file_written_in_another_way_is_left_to_its_author(home: Home, text: str) -> None:
    """In a file of any form the value is written correctly, or nothing is written."""
    path = written(home, text)
    try:
        set_value(home, "content.store", "off")
    except ConfigError:
        assert path.read_text() == text
    else:
        assert tomllib.loads(path.read_text())["content"]["store"] == "off"


def test_a_mistake_elsewhere_can_be_mended(home: Home) -> None:
    """A file that burnd refuses can be edited."""
    written(home, '[content]\nstore = "some"\n')
    set_value(home, "content.store", "full")
    assert config.load(home, {}).content_mode == "full"


def test_invalid_toml_is_reported(home: Home) -> None:
    written(home, "[content\n")
    with pytest.raises(ConfigError, match="is not TOML"):
        set_value(home, "content.store", "off")


_lines = st.sampled_from(
    ["# store = 1", "", "[content]", "[claude]", 'store = "full" # x', "roots = [", '"/a", # ]', "]",
     "inline_bytes = 5", '[ "disk" ]', "reserve = 'a # b'", '"store"="off"', "\t", "retention_days=1#2"]
)  # fmt: skip


@given(st.lists(_lines, max_size=12), st.sampled_from(["content.store", "disk.reserve", "claude.roots"]))
def test_every_other_line_survives(lines: list[str], name: str) -> None:
    """For any TOML file, setting a key gives TOML with that key set and all other values unchanged."""
    text = "\n".join(lines)
    try:
        before = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    value = ["/z"] if name == "claude.roots" else "new"
    table, key = name.split(".")
    after = tomllib.loads(with_value(text, name, value))
    assert after.pop(table)[key] == value
    others = {key_: value_ for key_, value_ in before.items() if key_ != table}
    assert others == after
    comments = [line for line in lines if line.startswith("#")]
    assert [line for line in with_value(text, name, value).splitlines() if line.startswith("#")] == comments


def test_the_command_hands_over_the_same(
    home: Home, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from burnd.settings import command as config_command

    monkeypatch.setenv("RELAYBURN_HOME", str(home.root))
    monkeypatch.setenv("RELAYBURN_CONTENT_STORE", "full")
    assert config_command.main(["set", "content.store", "off"]) == 0
    assert '"overruledBy": "RELAYBURN_CONTENT_STORE"' in capsys.readouterr().out
    assert config_command.main(["set", "content.store", "some"]) == 1
    assert "must be" in capsys.readouterr().err
    assert config_command.main(["path"]) == 0
    assert os.fspath(home.config) in capsys.readouterr().out


def test_a_currency_and_its_rate_are_set_together(
    home: Home, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rate of another currency is never used without a word."""
    from burnd.settings import command as config_command

    monkeypatch.setenv("RELAYBURN_HOME", str(home.root))
    for name, value, note in (
        ("currency", "EUR", "set its rate too, the price of a dollar in EUR"),
        ("rate", "0.92", '"note": ""'),
        ("currency", "JPY", "a dollar now counts as 0.92 JPY; change that with: burnctl config set rate NUMBER"),
        ("currency", "USD", '"note": ""'),
    ):
        assert config_command.main(["set", name, value]) == 0
        assert note in capsys.readouterr().out

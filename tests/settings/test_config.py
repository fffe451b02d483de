"""Settings: the environment beats the file, the file beats the defaults, and every mistake is named."""

from __future__ import annotations

import os
import tomllib
from decimal import Decimal
from pathlib import Path

import pytest

from burnd.errors import ConfigError
from burnd.paths import Home, find_home, socket_path
from burnd.records.times import DAY_MS
from burnd.server.service import LivePrices, LiveSettings
from burnd.settings import config
from burnd.settings.command import set_value
from burnd.settings.keys import KEYS

DOCS = Path(__file__).parents[2] / "docs" / "configuration.md"


def write(home: Home, text: str, name: str = "config.toml") -> None:
    home.root.mkdir(mode=0o700, exist_ok=True)
    (home.root / name).write_text(text)


def test_defaults_without_settings(home: Home) -> None:
    settings = config.load(home, {})
    assert (settings.content_mode, settings.retention_ms) == ("full", 90 * DAY_MS)
    assert (settings.values["content.inline_bytes"], settings.reserve) == (512, None)


def test_the_environment_beats_the_file(home: Home) -> None:
    write(home, '[content]\nstore = "off"\nretention_days = 7\n')
    assert config.load(home, {}).content_mode == "off"
    settings = config.load(home, {"RELAYBURN_CONTENT_STORE": "hash-only", "RELAYBURN_CONTENT_TTL_DAYS": "30"})
    assert (settings.content_mode, settings.retention_ms) == ("hash-only", 30 * DAY_MS)
    assert settings.from_env == {"content.store", "content.retention_days"}


@pytest.mark.parametrize("days", ["forever", "-1"])
def test_content_may_be_kept_for_ever(home: Home, days: str) -> None:
    assert config.load(home, {"RELAYBURN_CONTENT_TTL_DAYS": days}).retention_ms is None


def test_the_older_file_is_honoured_when_it_is_alone(home: Home) -> None:
    """{"content": {"store", "retentionDays"}}, and only while there is no config.toml."""
    write(home, '{"content": {"store": "off", "retentionDays": 14}}', "config.json")
    assert config.load(home, {}).retention_ms == 14 * DAY_MS
    assert config.load(home, {}).content_mode == "off"
    write(home, "[content]\nretention_days = 3\n")
    assert config.load(home, {}).content_mode == "full"


@pytest.mark.parametrize(
    ("name", "text", "key", "reason"),
    [
        ("config.toml", "[content]\nstor = 'full'\n", "content.stor", "did you mean content.store"),
        ("config.toml", "[content]\nstore = 'some'\n", "content.store", 'must be "full"'),
        ("config.toml", "[content]\nretention_days = -3\n", "content.retention_days", "number of days"),
        ("config.toml", "[content]\nretention_days = true\n", "content.retention_days", "number of days"),
        ("config.toml", "[content]\nretention_days = nan\n", "content.retention_days", "number of days"),
        ("config.toml", "[content]\ninline_bytes = 'x'\n", "content.inline_bytes", "whole number"),
        ("config.toml", "[disk]\nreserve = -1\n", "disk.reserve", "whole number"),
        ("config.toml", "store = 'full'\n", "store", "is not a setting"),
        ("config.toml", "[content\n", "", "is not TOML"),
        ("config.json", "{", "", "is not JSON"),
        ("config.json", "[]", "", "must be an object"),
        ("config.json", '{"content": {"color": 1}}', "content.color", "use config.toml"),
        ("config.json", '{"content": {"store": "some"}}', "content.store", 'must be "full"'),
    ],
)
def test_mistakes_name_file_key_and_reason(home: Home, name: str, text: str, key: str, reason: str) -> None:
    """F81: a person can find and mend the line from the message alone."""
    write(home, text, name)
    with pytest.raises(ConfigError) as raised:
        config.load(home, {})
    assert str(home.root / name) in str(raised.value)
    assert raised.value.key == key
    assert reason in str(raised.value)


def test_a_bad_variable_is_named(home: Home) -> None:
    with pytest.raises(ConfigError, match=r"environment: RELAYBURN_CONTENT_TTL_DAYS: .*'soon'"):
        config.load(home, {"RELAYBURN_CONTENT_TTL_DAYS": "soon"})


def test_init_writes_every_default_with_its_meaning(home: Home) -> None:
    """The output of `config init` is valid, complete and private, and lists the defaults."""
    path = config.init(home)
    tables = tomllib.loads(path.read_text())
    assert {f"{t}.{k}": v for t, keys in tables.items() for k, v in keys.items()} == {
        key.name: key.default for key in KEYS
    }
    assert path.stat().st_mode & 0o777 == 0o600
    assert config.load(home, {}) == config.Settings({key.name: key.default for key in KEYS})
    with pytest.raises(ConfigError, match="already exists"):
        config.init(home)


def test_init_takes_an_older_file_over(home: Home) -> None:
    write(home, '{"content": {"store": "off", "retentionDays": -1}}', "config.json")
    config.init(home)
    settings = config.load(home, {})
    assert (settings.content_mode, settings.retention_ms) == ("off", None)


def test_every_key_is_documented() -> None:
    """Every key is on the page."""
    text = DOCS.read_text()
    for key in KEYS:
        assert f"`{key.name}`" in text
        assert not key.env or f"`{key.env}`" in text


def test_the_home_is_where_the_variable_states(tmp_path: Path) -> None:
    assert find_home({"RELAYBURN_HOME": "/x/y"}).root == Path("/x/y")
    assert find_home({"HOME": str(tmp_path)}).root == tmp_path / ".relayburn"


def test_a_long_path_moves_the_socket(tmp_path: Path) -> None:
    """F65: beyond 100 bytes the socket goes to the runtime folder, under a name only this home has."""
    short, long = Home(Path("/h")), Home(Path("/h" + "x" * 100))
    assert socket_path(short, {}) == Path("/h/burnd.sock")
    moved = socket_path(long, {"XDG_RUNTIME_DIR": "/run/user/1"})
    assert moved.parent == Path("/run/user/1")
    assert moved != socket_path(Home(Path("/i" + "x" * 100)), {"XDG_RUNTIME_DIR": "/run/user/1"})
    with pytest.raises(ValueError, match="too long"):
        socket_path(long, {})
    assert socket_path(long, {"BURND_SOCKET": "/s"}) == Path("/s")
    assert socket_path(long, {"BURND_SOCKET": "s"}) == Path("s").absolute()


def test_a_pipe_in_its_place_is_not_waited_for(home: Home) -> None:
    """F81: it would be read for ever; it is refused like any file that cannot be used."""
    home.root.mkdir(parents=True, exist_ok=True)
    os.mkfifo(home.config)
    with pytest.raises(ConfigError, match="is not a regular file"):
        config.load(home, {})
    os.mkfifo(home.prices)
    assert "cannot be read" in LivePrices(home.prices).problem


def test_a_link_to_nothing_is_not_taken_for_no_settings(home: Home) -> None:
    """F81: a dangling link may lead to settings that forbid storing text, so it is an error."""
    home.root.mkdir(parents=True, exist_ok=True)
    home.config.symlink_to("nowhere.toml")
    with pytest.raises(ConfigError, match=r"config\.toml: cannot be read: is a dangling link"):
        config.load(home, {})


def test_reports_carry_the_currency_and_the_plans(home: Home) -> None:
    """Only what is set: a currency needs its rate, a plan is one of a product's subscriptions."""
    assert config.load(home, {}).display == {}
    set_value(home, "currency", "eur")
    assert config.load(home, {}).display == {}
    set_value(home, "rate", "0.92")
    set_value(home, "plan", "max20, plus")
    display = config.load(home, {}).display
    assert display["currency"] == {"code": "EUR", "rate": 0.92}
    assert [(plan["name"], plan["monthlyUsd"]) for plan in display["plans"]] == [("max20", 200), ("plus", 20)]
    with pytest.raises(ConfigError, match="one or more of pro"):
        set_value(home, "plan", "platinum")


def test_a_running_daemon_follows_the_keys_that_need_no_restart(home: Home) -> None:
    """A changed file applies at the next look; other keys wait for a restart, and a mistake changes nothing."""
    started = config.load(home, {})
    live = LiveSettings(home, {}, started)
    set_value(home, "plan", "max20")
    set_value(home, "content.store", "off")
    set_value(home, "budget.daily", "3")
    now = live.current
    assert [one["name"] for one in now.display["plans"]] == ["max20"]
    assert now.budgets == {"daily": Decimal(3)}
    assert now.content_mode == started.content_mode == "full"
    write(home, "[display]\nplan = 3\n")
    assert live.current == now
    assert "display.plan" in live.problem
    home.config.unlink()
    assert (live.current, live.problem) == (started, "")


def test_keys_of_the_environment_stay(home: Home) -> None:
    env = {"RELAYBURN_CONTENT_TTL_DAYS": "7"}
    live = LiveSettings(home, env, config.load(home, env))
    set_value(home, "content.retention_days", "30")
    assert live.current.retention_ms == 7 * DAY_MS
    assert live.current.from_env == {"content.retention_days"}

"""Bringing in another price list: checked as the daemon checks it, merged with care, put in place at once."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from burnd.errors import BurndError
from burnd.pricing import PriceFileError, PriceTable, usd_per_million
from burnd.pricing import update as updating
from burnd.pricing.update import fetch, update

DAY = "2026-11-16"


def listed(**models: Any) -> bytes:
    """A list of Anthropic's, as models.dev publishes it."""
    entries = {
        name.replace("_", "-"): {"id": name, "name": name, "last_updated": "2026-01-01", "cost": cost}
        for name, cost in models.items()
    }
    return json.dumps({"anthropic": {"id": "anthropic", "name": "Anthropic", "models": entries}}).encode()


def price(home: Path, model: str) -> str | None:
    found = PriceTable.load(str(home / "models.dev.json")).find(model)
    return None if found is None else f"{usd_per_million(found.rates().input):f}".rstrip("0").rstrip(".")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def taken(home: Path, text: bytes, day: str = DAY) -> list[str]:
    return update(home / "models.dev.json", text, "list.json", day)


def test_a_list_is_taken_and_counts(home: Path) -> None:
    said = taken(home, listed(claude_opus_5={"input": 4, "output": 20}, claude_opus_9={"input": 7.5, "output": 30}))
    assert (price(home, "claude-opus-5"), price(home, "claude-opus-9")) == ("4", "7.5")
    assert price(home, "claude-haiku-4-5") == "1"  # what the list lacks stays as shipped
    assert said[:2] == [
        f"2 prices in {home / 'models.dev.json'}",
        "1 new, 1 with another price, 0 not listed any more",
    ]
    assert "  anthropic/claude-opus-5: input $5 -> $4, output $25 -> $20" in said[3]


def test_the_file_is_private_and_small(home: Path) -> None:
    """Only prices are stored, in a private file."""
    taken(home, listed(claude_opus_5={"input": 4, "output": 20}))
    path = home / "models.dev.json"
    assert path.stat().st_mode & 0o777 == 0o600
    entry = json.loads(path.read_bytes())["anthropic"]["models"]["claude-opus-5"]
    assert entry == {"cost": {"input": 4, "output": 20}, "fetched": DAY}


def test_the_same_again_changes_nothing(home: Path) -> None:
    text = listed(claude_opus_5={"input": 4, "output": 20})
    taken(home, text)
    before = (home / "models.dev.json").read_bytes()
    said = taken(home, text)
    assert said[1] == "0 new, 0 with another price, 0 not listed any more"
    assert (home / "models.dev.json").read_bytes() == before


def test_prices_of_your_own_stay(home: Path) -> None:
    """Prices of the user are never replaced; fetched ones are."""
    home.mkdir(mode=0o700)
    own = {"anthropic": {"models": {"claude-opus-5": {"cost": {"input": 1, "output": 1}}}}}
    (home / "models.dev.json").write_text(json.dumps(own))
    said = taken(home, listed(claude_opus_5={"input": 4, "output": 20}, claude_opus_9={"input": 7, "output": 30}))
    assert (price(home, "claude-opus-5"), price(home, "claude-opus-9")) == ("1", "7")
    assert said[-2:] == ["your own prices stay as they are:", "  anthropic/claude-opus-5"]
    prices = PriceTable.load(str(home / "models.dev.json"))
    assert (prices.fetched, prices.own) == (DAY, 1)
    taken(home, listed(claude_opus_5={"input": 4, "output": 20}, claude_opus_9={"input": 8, "output": 30}))
    assert (price(home, "claude-opus-5"), price(home, "claude-opus-9")) == ("1", "8")


def written(home: Path, **providers: Any) -> None:
    """A user's file: per provider, models with their input price."""
    home.mkdir(mode=0o700)
    own = {
        provider: {"models": {model: {"cost": {"input": usd, "output": 1}} for model, usd in models.items()}}
        for provider, models in providers.items()
    }
    (home / "models.dev.json").write_text(json.dumps(own))


PUBLISHED = listed(
    claude_sonnet_4_5={"input": 3, "output": 15},
    claude_sonnet_4_5_20250929={"input": 3, "output": 15},
    claude_opus_5={"input": 5, "output": 25},
)


def test_a_price_of_your_own_holds_for_every_spelling_whatever_is_fetched(home: Path) -> None:
    """Dated names in a fetched list keep the user's price of the plain name."""
    written(home, anthropic={"claude-sonnet-4-5": 50})
    said = taken(home, PUBLISHED)
    assert said[1] == "0 new, 0 with another price, 0 not listed any more"
    for spelling in ("claude-sonnet-4-5", "claude-sonnet-4-5-20250929", "anthropic/claude-sonnet-4.5"):
        assert price(home, spelling) == "50", spelling


def test_a_dated_model_that_always_cost_something_else_is_left_alone(home: Path) -> None:
    """A price for `gpt-4o` does not apply to its first version, which has its own in the fetched list."""
    written(home, openai={"gpt-4o": 50})
    first = {"cost": {"input": 6, "output": 15}, "last_updated": "2026-01-01"}
    taken(home, json.dumps({"openai": {"models": {"gpt-4o-2024-05-13": first}}}).encode())
    assert (price(home, "gpt-4o-2024-08-06"), price(home, "gpt-4o-2024-05-13")) == ("50", "6")


@pytest.mark.parametrize(("provider", "model"), [("Anthropic", "claude-opus-5"), ("anthropic", "Claude-Opus-5")])
def test_a_price_of_your_own_stays_however_its_name_is_written(home: Path, provider: str, model: str) -> None:
    """Case is ignored: the fetched price neither replaces the user's nor is added beside it."""
    written(home, **{provider: {model: 50}})
    said = taken(home, PUBLISHED)
    assert price(home, "claude-opus-5") == "50"
    assert said[-1] == f"  {provider}/{model}"
    assert (home / "models.dev.json").read_text().lower().count('"claude-opus-5"') == 1


def test_remarks_stay(home: Path) -> None:
    """Comments of the user stay, and those of the fetched list are not added."""
    home.mkdir(mode=0o700)
    own = {"_note": ["ours", {"since": 2026.5}], "anthropic": {"models": {"x": {"cost": {"input": 1, "output": 1}}}}}
    (home / "models.dev.json").write_text(json.dumps(own))
    fetched = json.loads(PUBLISHED) | {"_source": "elsewhere"}
    taken(home, json.dumps(fetched).encode())
    after = json.loads((home / "models.dev.json").read_bytes())
    assert after["_note"] == own["_note"]
    assert "_source" not in after


def test_a_whole_list_put_there_by_hand_is_renewed(home: Path) -> None:
    """A published list is recognised by its other fields: it is not the user's."""
    home.mkdir(mode=0o700)
    (home / "models.dev.json").write_bytes(listed(claude_opus_5={"input": 1, "output": 1}))
    taken(home, listed(claude_opus_5={"input": 4, "output": 20}))
    assert price(home, "claude-opus-5") == "4"


def test_what_is_listed_no_more_keeps_its_price(home: Path) -> None:
    """Last year's sessions still have a cost; the day it was last seen is remembered."""
    taken(home, listed(claude_opus_9={"input": 7, "output": 30}), "2026-01-01")
    said = taken(home, listed(claude_opus_5={"input": 4, "output": 20}), "2026-06-01")
    taken(home, listed(claude_opus_5={"input": 4, "output": 20}), "2026-09-01")
    found = PriceTable.load(str(home / "models.dev.json")).find("claude-opus-9")
    assert found is not None
    assert found.retired_after == "2026-01-01"
    assert "  anthropic/claude-opus-9" in said


def test_one_bad_entry_is_left_out_and_reported(home: Path) -> None:
    """Of thousands of models one may be wrong: the others count, and it is named with its reason."""
    said = taken(home, listed(claude_opus_5={"input": 4, "output": 20}, bad={"input": -1, "output": 2}))
    assert price(home, "claude-opus-5") == "4"
    assert said[-1] == "  anthropic/bad: cost.input: must be between 0 and 1000000 USD per million tokens"


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"<html>blocked</html>",
        b"[]",
        b"{}",
        b'{"anthropic": []}',
        b'{"anthropic": {}}',
        b'{"anthropic": {"models": {"m": {"cost": {"input": "many", "output": 1}}}}}',
        b'{"anthropic": {"models": {"m": {}}}}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_list_changes_nothing(home: Path, text: bytes) -> None:
    taken(home, listed(claude_opus_5={"input": 4, "output": 20}))
    before = (home / "models.dev.json").read_bytes()
    with pytest.raises(PriceFileError):
        taken(home, text)
    assert (home / "models.dev.json").read_bytes() == before


def test_a_broken_user_file_is_reported_and_kept(home: Path) -> None:
    home.mkdir(mode=0o700)
    (home / "models.dev.json").write_text("not JSON")
    with pytest.raises(PriceFileError, match=r"models\.dev\.json"):
        taken(home, listed(claude_opus_5={"input": 4, "output": 20}))
    assert (home / "models.dev.json").read_text() == "not JSON"


def test_prices_are_kept_to_the_digit(home: Path) -> None:
    """0.0375 stays 0.0375, tiers included."""
    cost = {"input": 0.0375, "output": 1.1, "tiers": [{"tier": {"type": "context", "size": 9}, "input": 0.07}]}
    taken(home, listed(claude_opus_9=cost))
    assert b'"input":0.0375' in (home / "models.dev.json").read_bytes()
    assert b'"input":0.07' in (home / "models.dev.json").read_bytes()


class Server(http.server.BaseHTTPRequestHandler):
    """Answers everything with `text` and `code`."""

    text = listed(claude_opus_5={"input": 4, "output": 20})
    code = 200

    def do_GET(self) -> None:
        self.send_response(self.code)
        self.end_headers()
        self.wfile.write(self.text)

    def log_message(self, *_: Any) -> None:
        """Nothing."""


@pytest.fixture
def address() -> Iterator[str]:
    server = http.server.HTTPServer(("127.0.0.1", 0), Server)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/api.json"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_list_is_fetched(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert fetch(address) == Server.text
    monkeypatch.setattr(Server, "code", 503)
    with pytest.raises(BurndError, match="answered 503"):
        fetch(address)
    monkeypatch.setattr(Server, "code", 200)
    monkeypatch.setattr(updating, "_MOST_BYTES", 10)
    with pytest.raises(BurndError, match="more than a price list"):
        fetch(address)


def test_being_offline_is_reported_with_advice() -> None:
    with pytest.raises(BurndError, match=r"cannot be reached.*nothing was changed.*--from FILE"):
        fetch("http://127.0.0.1:1/api.json")


def run(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "burnd.pricing.update", *arguments],
        env={"PATH": os.environ["PATH"], "RELAYBURN_HOME": str(home), "HOME": str(home.parent)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_command(home: Path, tmp_path: Path) -> None:
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_bytes(listed(claude_opus_5={"input": 4, "output": 20}))
    bad.write_text("{")
    done = run(home, "--from", str(good))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"1 price in {home / 'models.dev.json'}\n")
    failed = run(home, "--from", str(bad))
    assert (failed.returncode, failed.stdout) == (1, "")
    assert failed.stderr.startswith(f"burnctl: {bad}: is not JSON")
    assert run(home, "--from", str(tmp_path / "none.json")).returncode == 1


def test_a_server_that_sends_a_byte_now_and_then_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """One timeout covers the whole response, headers included, however slowly it arrives."""
    monkeypatch.setattr(updating, "_DEADLINE_S", 0.5)
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def drip() -> None:
            client, _ = server.accept()
            with client, contextlib.suppress(OSError):
                client.sendall(b"HTTP/1.1 200 OK\r\n")
                while not ended.wait(0.2):
                    client.sendall(b"X")
                client.sendall(b": y\r\nContent-Length: 0\r\n\r\n")
                client.recv(1)  # until the other side has closed

        threading.Thread(target=drip, name="drip").start()
        try:
            with pytest.raises(BurndError, match="did not send the list within"):
                fetch(f"http://127.0.0.1:{server.getsockname()[1]}/api.json")
        finally:
            ended.set()
            for thread in threading.enumerate():
                if thread.name in ("drip", "price list"):
                    thread.join()


def test_names_in_a_list_cannot_steer_a_terminal(home: Path, tmp_path: Path) -> None:
    """Names of models, and why one was left out, are printed without escape sequences and control characters."""
    evil = "m\x1b]52;c;cHduZWQ=\x07\x1b[31m\r\n\x9b2J\u202e-9"
    for cost in ({"input": 4, "output": 20}, {"input": 5, "output": 20}):
        models = {evil: {"cost": cost}, f"{evil}-bad": {"cost": {"input": "x"}}}
        done = _updated(home, tmp_path, {f"p{evil}": {"models": models}})
        assert done.returncode == 0
        assert "m-9" in done.stdout
        assert all(line.isprintable() for line in done.stdout.split("\n"))
    failed = _updated(home, tmp_path, {f"p{evil}": 7})
    assert failed.returncode == 1
    assert failed.stderr.removesuffix("\n").isprintable()


def _updated(home: Path, folder: Path, providers: dict[str, Any]) -> subprocess.CompletedProcess[str]:
    (folder / "list.json").write_text(json.dumps(providers))
    command = [sys.executable, "-m", "burnd.pricing.update", "--from", str(folder / "list.json")]
    environ = {**os.environ, "RELAYBURN_HOME": str(home)}
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False)

"""`search_memory` with a real daemon: over the socket, as burnctl prints it, and without a trace of it on the disk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from burnd.paths import Home
from tests.burnctl.invoke import run
from tests.server.logs import contents, conversation, write
from tests.server.wire import running

SECTION = "## Deploying\n\nRun zanzibar before you deploy to staging.\n\nThen tell the channel."


def furnish(home: Home, folder: Path) -> None:
    """A project that was worked in, one that was not, a user's own file and a memory."""
    for name in ("shop", "other"):
        (folder / name).mkdir()
        (folder / name / "AGENTS.md").write_text(f"# {name}\n\nAbout {name}.\n\n{SECTION}\n\n## Else\n\nNothing.\n")
    (folder / "other" / "AGENTS.md").write_text("## Deploying\n\nzanzibar, but in a project that was never worked in\n")
    slug = "".join(letter if letter.isalnum() else "-" for letter in str(folder / "shop"))
    user = home.root.parent / ".claude"
    memory = user / "projects" / slug / "memory"
    memory.mkdir(parents=True)
    (memory / "spices.md").write_text("The user likes cardamom in tests.\n")
    (user / "CLAUDE.md").write_text("Answer in short sentences.\n")
    write(home, conversation("s1", "fine", cwd=str(folder / "shop")), "s1")


@pytest.mark.parametrize("mode", ["full", "off"])
def test_whole_entries_of_every_project_are_found(home: Home, tmp_path: Path, mode: str) -> None:
    furnish(home, tmp_path)
    with running(home, RELAYBURN_CONTENT_STORE=mode) as daemon, daemon.wire() as wire:
        wire.call("flush")
        answer = wire.call("search_memory", query="Zanzibar staging")
        (entry,) = answer["entries"]
        assert (entry["text"], entry["heading"], entry["line"]) == (SECTION, "Deploying", 5)
        assert (entry["path"], entry["project"]) == (str(tmp_path / "shop" / "AGENTS.md"), str(tmp_path / "shop"))
        assert (answer["matches"], answer["files"]) == (1, 3)
        (entry,) = wire.call("search_memory", query="spices")["entries"]
        assert (entry["kind"], entry["project"]) == ("claude-memory", str(tmp_path / "shop"))
        (entry,) = wire.call("search_memory", query='"short sentences"')["entries"]
        assert (entry["kind"], entry["project"], entry["heading"]) == ("claude-md", None, None)
        assert wire.call("search_memory", query="nowhere")["entries"] == []
        assert "no word" in wire.call("search_memory", query="?!")["note"]
        (tmp_path / "shop" / "AGENTS.md").write_text("## Deploying\n\nNow with saffron.\n")
        assert wire.call("search_memory", query="zanzibar")["entries"] == []
        assert len(wire.call("search_memory", query="saffron")["entries"]) == 1
        assert wire.error("search_memory")["code"] == -32602
        if mode == "full":
            _check_burnctl(home, tmp_path)
    assert [path for path, data in contents(home.root) if b"zanzibar" in data.lower() or b"saffron" in data] == []
    assert b"zanzibar" not in daemon.log.read_bytes().lower()


def _check_burnctl(home: Home, folder: Path) -> None:
    shown = run(home, "search", "--memory", "saffron").stdout
    assert shown == f"{folder}/shop/AGENTS.md:1\n  ## Deploying\n\n  Now with saffron.\n"
    assert json.loads(run(home, "search", "--memory", "saffron", "--json").stdout)["matches"] == 1
    assert run(home, "search", "--memory", "nowhere").stdout == "No instruction or memory file has these words.\n"
    refused = run(home, "search", "--memory", "saffron", "--project", ".")
    assert refused.returncode == 2
    assert "--project cannot be used with --memory" in refused.stderr

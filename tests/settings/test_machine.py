"""The machine id: one for as long as the home stays where it is, another for a copy of it."""

from __future__ import annotations

import json
import os
import shutil
import stat
from pathlib import Path

import pytest

from burnd.paths import Home
from burnd.settings.machine import machine_id
from tests.server.wire import running


@pytest.fixture
def system(tmp_path: Path) -> Path:
    path = tmp_path / "machine-id"
    path.write_text("0123456789abcdef0123456789abcdef\n")
    return path


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home" / "machine.json"


def test_it_is_made_once(place: Path, system: Path) -> None:
    """Random, private, and without the system's own id."""
    first = machine_id(place, [str(system)])
    assert first is not None
    assert len(first) == 16
    assert machine_id(place, [str(system)]) == first
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    assert system.read_text().strip() not in place.read_text()


def test_a_copied_home_gets_another(place: Path, system: Path) -> None:
    """The original stays what it was, and so does a home that was moved on its disk."""
    first = machine_id(place, [str(system)])
    copy = place.parent.with_name("copy")
    shutil.copytree(place.parent, copy)
    second = machine_id(copy / "machine.json", [str(system)])
    assert second not in (None, first)
    moved = place.parent.rename(place.parent.with_name("moved"))
    assert machine_id(moved / "machine.json", [str(system)]) == first


def test_another_system_gets_another(place: Path, system: Path) -> None:
    """A disk that was cloned with the home has its inodes."""
    first = machine_id(place, [str(system)])
    system.write_text("fedcba9876543210fedcba9876543210\n")
    second = machine_id(place, [str(system)])
    assert second not in (None, first)
    assert machine_id(place, [str(system)]) == second
    assert machine_id(place, ["/none"]) not in (first, second)


@pytest.mark.parametrize(("device", "stays"), [(os.makedev(8, 1), False), (os.makedev(0, 1), True)])
def test_a_device_counts_if_it_has_a_number(
    place: Path, monkeypatch: pytest.MonkeyPatch, device: int, *, stays: bool
) -> None:
    """btrfs, NFS and overlays have another number after each boot."""
    facts = os.stat(place.parent)
    monkeypatch.setattr(os, "stat", lambda _path: os.stat_result((*facts[:2], os.makedev(8, 2), *facts[3:])))
    first = machine_id(place, [])
    monkeypatch.setattr(os, "stat", lambda _path: os.stat_result((*facts[:2], device, *facts[3:])))
    assert (machine_id(place, []) == first) is stays


@pytest.mark.parametrize("damage", [b"", b"{", b"\xff", b'{"id": 1}'])
def test_a_damaged_file_is_replaced(place: Path, damage: bytes) -> None:
    place.write_bytes(damage)
    first = machine_id(place, [])
    assert first is not None
    assert machine_id(place, []) == first


def test_without_a_folder_there_is_no_machine_id(tmp_path: Path) -> None:
    assert machine_id(tmp_path / "none" / "machine.json", []) is None
    (tmp_path / "machine.json").mkdir()
    assert machine_id(tmp_path / "machine.json", []) is None


def test_status_shows_it(home: Home) -> None:
    """The same after a restart; a setting overrides it at once."""
    with running(home) as daemon, daemon.wire() as wire:
        first = wire.call("status")["machine"]
        assert first == json.loads(home.machine.read_text())["id"]
    with running(home) as daemon, daemon.wire() as wire:
        assert wire.call("status")["machine"] == first
        home.config.write_text('[machine]\nid = "build-1"\n')
        assert wire.call("status")["machine"] == "build-1"

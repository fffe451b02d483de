"""The unit files: one text for those who install and those who package, and systemd finds nothing wrong with it."""

from __future__ import annotations

import os
import plistlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from burnctl.service import units
from burnctl.service.units import Settings, command_of, variables_in
from tests.packaging.scripts import ROOT, load

make_units = load("make_units")
NEVER_IN_USER_UNITS = ("ProtectProc", "ProtectControlGroups", "RemoveIPC", "AppArmorProfile", "LogNamespace")


def test_what_is_shipped_is_what_is_installed() -> None:
    """systemd/ and packaging/ hold what the templates say; else run: python packaging/make_units.py"""
    for path, text in make_units.files().items():
        assert (ROOT / path).read_text() == text, f"{path} is out of date: run python packaging/make_units.py"


def test_nothing_else_is_in_systemd() -> None:
    """Every unit comes from a template."""
    made = {Path(path).name for path in make_units.files() if path.startswith("systemd/")}
    assert {path.name for path in (ROOT / "systemd").iterdir()} == made


def verified(folder: Path, files: Mapping[str, str]) -> str:
    """Complaints of systemd about these files as user units."""
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not here, so nobody can say whether systemd takes the units")
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).write_text(text)
    units_among = [name for name in files if not name.endswith(".conf")]
    with tempfile.TemporaryDirectory(prefix="run-") as runtime:
        done = subprocess.run(
            [analyze, "--user", "verify", "--man=no", *units_among],
            env={**os.environ, "XDG_RUNTIME_DIR": runtime, "SYSTEMD_UNIT_PATH": f"{folder}:"},
            capture_output=True,
            text=True,
            check=False,
        )
    if "Failed to initialize manager" in done.stderr:
        pytest.skip(f"systemd-analyze cannot look at user units here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    # Other units of this machine are loaded on the way; what is wrong with those is not our affair.
    ours = (str(folder), *units_among)
    return "".join(line for line in done.stderr.splitlines(keepends=True) if line.startswith(ours))


def test_systemd_takes_what_is_installed(tmp_path: Path) -> None:
    """`systemd-analyze --user verify` is silent, also for odd paths and values."""
    odd = tmp_path / "odd %h $PATH é"
    odd.mkdir()
    python = odd / "python"
    python.symlink_to(sys.executable)
    env = {"RELAYBURN_HOME": f'{odd}/"home" \\x', "OPENCODE_DB": "/a 'b'; c"}
    push = [f"{odd}/there", "--without-project", "/a 'b'"]
    where = (str(odd), f"{odd}/burnd.sock")
    settings = Settings(variables_in(env, "/"), command_of(str(python)), *where, push, {"AWS_PROFILE": "a b"})
    files = units.files(settings, hardened=True, socketed=True, priced=True)
    assert verified(tmp_path / "units", files) == ""


def test_systemd_takes_what_is_shipped(tmp_path: Path) -> None:
    """The same for the files of the repository, with both drop-ins."""
    if not Path("/usr/bin/python3").exists():
        pytest.skip("the shipped units name /usr/bin/python3, which is not here")
    files = {}
    for path, text in make_units.files().items():
        name = Path(path).name
        if not name.endswith(".plist"):
            files[f"burnd.service.d/{name}" if name.endswith(".conf") else name] = text
    assert verified(tmp_path / "units", files) == ""


def test_systemd_complains_about_a_bad_unit(tmp_path: Path) -> None:
    """A unit with a key that does not exist is complained of: the silence above means something."""
    assert "Bogus" in verified(tmp_path / "units", {"x.service": "[Service]\nExecStart=/bin/true\nBogus=1\n"})


def test_nothing_that_user_units_may_not_say() -> None:
    """Settings for system units only are absent, and those that need user namespaces are in the drop-in."""
    made = make_units.files()
    for path, text in made.items():
        assert not any(key in text for key in NEVER_IN_USER_UNITS), path
    for key in ("ProtectSystem", "ProtectHome", "PrivateTmp", "PrivateDevices", "PrivateNetwork", "ProtectKernel"):
        assert key in made["systemd/hardening.conf"]
        assert key not in made["systemd/burnd.service"]


def test_the_agent_is_a_property_list() -> None:
    """Its label is its file's name."""
    (path,) = (ROOT / "packaging").glob("*.plist")
    assert plistlib.loads(path.read_bytes())["Label"] == path.stem


def test_the_price_updater_is_not_part_of_the_service() -> None:
    """Nothing that is enabled by default goes to the network."""
    made = make_units.files()
    assert "prices" not in made["systemd/burnd.service"]
    assert all("prices" not in text for path, text in made.items() if path.startswith("systemd/"))

"""Wheel, sdist and Debian package are complete and work without the source tree."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

from burnd import __version__, errors
from tests.packaging.scripts import ROOT, load

_BESIDE = ("man/man1/burnctl.1", "man/man1/burnd.1", "bash-completion/completions/burnctl", "_burnctl", "burnctl.fish")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return folder


def test_the_wheel_has_all_it_needs(built: Path) -> None:
    """Both programs, the prices, the types' marker, man pages and completions; no tests."""
    names = zipfile.ZipFile(built / f"burnd-{__version__}-py3-none-any.whl").namelist()
    for wanted in ("burnd/pricing/prices.json", "burnctl/py.typed", "burnd/py.typed", "burnctl/commands/summary.py"):
        assert wanted in names
    for beside in _BESIDE:
        assert any(name.endswith(beside) for name in names), beside
    assert not [name for name in names if name.startswith("tests/")]


def test_the_sdist_can_be_tested(built: Path) -> None:
    """It holds the tests, the docs and what `make` needs, and nothing of this checkout's own."""
    with tarfile.open(built / f"burnd-{__version__}.tar.gz") as archive:
        names = {name.split("/", 1)[-1] for name in archive.getnames()}
    for wanted in ("Makefile", "requirements.lock", "tests/make.py", "docs/architecture.md", "packaging/make_man.py"):
        assert wanted in names
    assert not [name for name in names if name.startswith((".venv", ".bench", ".git/"))]


def test_hints_name_what_the_package_asks_for() -> None:
    """The suggested package version is the one of burnd's extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = project["optional-dependencies"]
    assert optional["mcp"] == [errors.MCP]
    assert optional["parquet"] == [errors.PARQUET]
    assert errors.SEARCH in project["dependencies"]


@pytest.mark.slow
def test_the_wheel_works_in_an_empty_environment(built: Path, tmp_path: Path) -> None:
    """`pip install` and `burnctl demo` is all there is to it."""
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    python = tmp_path / "venv" / "bin" / "python"
    wheel = built / f"burnd-{__version__}-py3-none-any.whl"
    subprocess.run([python, "-m", "pip", "install", "-q", str(wheel)], check=True)
    _try_out(python, tmp_path)
    assert (tmp_path / "venv" / "share" / "man" / "man1" / "burnctl.1").exists()


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("dpkg-deb") is None or not Path("/usr/bin/python3").exists(),
    reason="needs Debian's dpkg-deb and Python",
)
def test_the_debian_package_works(tmp_path: Path) -> None:
    """It brings its libraries, and runs with the system's Python."""
    package = load("make_deb").build(tmp_path / "dist")
    assert package.name.startswith(f"burnd_{__version__}_")
    subprocess.run(["dpkg-deb", "-x", str(package), str(tmp_path / "root")], check=True)
    root = tmp_path / "root"
    for wanted in ("usr/bin/burnd", "usr/bin/burnctl", "usr/share/man/man1/burnd.1"):
        assert (root / wanted).exists()
    _try_out(root / "usr/lib/burnd/bin/python3", tmp_path)


def test_the_debian_package_names_its_version_and_python() -> None:
    """Version and the Python it is made for."""
    if shutil.which("dpkg") is None:
        pytest.skip("needs Debian's dpkg, which names the kind of machine")
    control = load("make_deb").control()
    assert f"Version: {__version__}\n" in control
    assert f"python3 (>= {sys.version_info.major}.{sys.version_info.minor})" in control


def _try_out(python: Path, folder: Path) -> None:
    own = {"HOME": str(folder), "PATH": "/usr/bin:/bin", "TMPDIR": "/tmp", "CI": "1"}
    run = [str(python), "-P", "-m", "burnctl"]
    said = subprocess.run([*run, "--version"], env=own, cwd="/", capture_output=True, text=True, check=True).stdout
    assert said == f"burnctl {__version__}\n"
    demo = subprocess.run([*run, "demo"], env=own, cwd="/", capture_output=True, text=True, check=False)
    assert demo.returncode == 0, demo.stderr
    assert "shop-api" in demo.stdout

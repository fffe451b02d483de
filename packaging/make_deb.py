"""Makes a Debian package: burnd with the libraries it needs, its man pages and completions.

python packaging/make_deb.py dist        # needs dpkg-deb, and a registry or wheels for pip
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from burnd import __version__

ROOT = Path(__file__).parents[1]
_PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
_OWN = "usr/lib/burnd"  # an environment of its own: what burnctl starts is found by the same interpreter
_LIBRARIES = f"{_OWN}/lib/{_PYTHON}/site-packages"
_CONTROL = """Package: burnd
Version: {version}
Section: utils
Priority: optional
Architecture: {architecture}
Depends: python3 (>= {python}), python3 (<< {next_python})
Maintainer: the maintainers of burnd <burnd@localhost>
Description: records what coding agents do on this machine and what it costs
 A daemon that records every turn of coding agents as they work, and
 answers what it cost, why, and where to save. Everything stays on the machine.
"""
_ENVIRONMENT = "home = /usr/bin\ninclude-system-site-packages = false\n"
_PROGRAM = """#!/usr/lib/burnd/bin/python3 -P
import sys
from {module}.cli import main
sys.exit(main())
"""
_SHARED = {
    "packaging/man/burnd.1": "usr/share/man/man1/burnd.1",
    "packaging/man/burnctl.1": "usr/share/man/man1/burnctl.1",
    "packaging/completions/burnctl": "usr/share/bash-completion/completions/burnctl",
    "packaging/completions/_burnctl": "usr/share/zsh/vendor-completions/_burnctl",
    "packaging/completions/burnctl.fish": "usr/share/fish/vendor_completions.d/burnctl.fish",
    "LICENSE": "usr/share/doc/burnd/copyright",
    "CHANGELOG.md": "usr/share/doc/burnd/changelog",
}


def control() -> str:
    """What the package says of itself; compiled libraries tie it to this Python and this kind of machine."""
    return _CONTROL.format(
        version=__version__,
        architecture=_printed("dpkg", "--print-architecture"),
        python=_PYTHON.removeprefix("python"),
        next_python=f"{sys.version_info.major}.{sys.version_info.minor + 1}",
    )


def build(folder: Path) -> Path:
    """The package, in this folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        tree = Path(name)
        tree.chmod(0o755)
        _install(tree)
        (tree / "DEBIAN").mkdir()
        (tree / "DEBIAN" / "control").write_text(control())
        return Path(_printed("dpkg-deb", "--root-owner-group", "--build", str(tree), str(folder)).split("'")[3])


def _install(tree: Path) -> None:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    lock = ["--constraint", str(ROOT / "requirements.lock")]
    subprocess.run([*pip, *lock, "--target", str(tree / _LIBRARIES), str(ROOT)], check=True)
    for left_over in ("bin", "share"):
        shutil.rmtree(tree / _LIBRARIES / left_over, ignore_errors=True)
    (tree / _OWN / "pyvenv.cfg").write_text(_ENVIRONMENT)
    (tree / _OWN / "bin").mkdir()
    (tree / _OWN / "bin" / "python3").symlink_to("/usr/bin/python3")
    for module in ("burnd", "burnctl"):
        program = tree / "usr/bin" / module
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(_PROGRAM.format(module=module))
        program.chmod(0o755)
    for source, target in _SHARED.items():
        (tree / target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / source, tree / target)


def _printed(*command: str) -> str:
    plain = {**os.environ, "LC_ALL": "C"}
    return subprocess.run(command, check=True, capture_output=True, text=True, env=plain).stdout.strip()


if __name__ == "__main__":
    sys.stdout.write(f"{build(Path(sys.argv[1] if len(sys.argv) > 1 else 'dist'))}\n")

"""Makes a certificate for 127.0.0.1 that is its own authority, with openssl."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


def self_signed(folder: Path) -> tuple[Path, Path]:
    """The files of a certificate and of its key."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl")
    folder.mkdir(parents=True, exist_ok=True)
    certificate, key = folder / "cert.pem", folder / "key.pem"
    names = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1,IP:127.0.0.2"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    subprocess.run([*command, "-days", "2", *names, *files], check=True, capture_output=True)
    return certificate, key

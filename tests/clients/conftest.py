"""Fixtures for the spool: a home with a short path, and a real daemon on it."""

from __future__ import annotations

from tests.server.conftest import daemon, home

__all__ = ["daemon", "home"]

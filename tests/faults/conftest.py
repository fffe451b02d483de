"""Fixtures for faults: a home with a short path that a real daemon can be started on."""

from __future__ import annotations

from tests.server.conftest import home

__all__ = ["home"]

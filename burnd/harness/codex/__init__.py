"""Codex: rollouts in JSON lines."""

"""Starts burnd at login: unit files and agents for systemd and launchd."""

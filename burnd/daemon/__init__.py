"""The daemon process: start, stop, log, systemd, and `burnd check`."""

"""The daemon process: start and stop, log, systemd, and the checks of `burnd check`."""

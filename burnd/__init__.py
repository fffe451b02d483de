"""burnd: a daemon that records every turn that coding agents take on this machine."""

__version__ = "0.1.0"

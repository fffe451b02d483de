"""Claude Code: transcripts in JSON lines."""

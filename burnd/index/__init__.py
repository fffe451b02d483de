"""The SQLite index, derived from ledger and content for quick answers; it can be deleted at any time."""

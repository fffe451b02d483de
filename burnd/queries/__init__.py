"""Queries: the answers of reports, sessions and search, from the index, content and ledger. Read-only."""

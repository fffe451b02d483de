"""The truth on disk: the ledger, the content beside it, and what is kept for how long."""

"""Search: finds a conversation again by its words. The way of the data to the ledger knows nothing of it."""

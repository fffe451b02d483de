"""Search: finds a conversation again by its words. On its way to the ledger a record's words are only taken down."""

"""What is derived from the ledger and the content so that answers come at once; it may be deleted any time."""

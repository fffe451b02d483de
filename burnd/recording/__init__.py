"""What is recorded, on its way to content, ledger and index: what is new of it, whose it is, and the one writer."""

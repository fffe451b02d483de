"""Storage: ledger, sidecars, blobs and content modes."""

"""The truth on disk: ledger, sidecars and blobs, and the rules of retention."""

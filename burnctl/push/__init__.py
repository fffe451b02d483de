"""Push: sends the daemon's change feed to a database or to a folder of Parquet segments, exact and resumable."""

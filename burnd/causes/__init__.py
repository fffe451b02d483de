"""What every dollar was spent on, kept in the index: rails counted piece by piece, with sums by time and session."""

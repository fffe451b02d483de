"""Reports over many machines, by SQL over the tables that they push to: the same answers as those of one machine."""

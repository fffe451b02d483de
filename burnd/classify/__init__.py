"""Gives a turn its activity label and a shell command its verb, by fixed rules over plain values."""

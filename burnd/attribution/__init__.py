"""Assigns every billed token of a rail to a cause; `pricing` has the prices."""

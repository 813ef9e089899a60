"""Bytes <-> messages <-> decisions. Pure functions and values: no Trio, no I/O, no clock."""

"""Scripted peers and faulty streams, for callboard's tests and for yours."""

"""Servers for the tests that start processes. In a folder of their own, as authors have them."""

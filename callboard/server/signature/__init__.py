"""Signatures of handlers: parameters, their schemas, output."""

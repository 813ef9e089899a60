"""HTTP, sans-IO: bytes to requests, answers to bytes, and every decision that needs no actor."""

"""What a handler's signature says: parameters, their schemas, its output."""

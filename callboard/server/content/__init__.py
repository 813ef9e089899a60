"""Results of handlers, forms, and messages about invalid values."""

"""OpenAPI: what a document says of an HTTP API, as tools and as requests."""

"""Files that only need to type-check. Every `type: ignore` here is an error that users must get."""

"""What handlers return, what forms ask, and what is said of values that do not fit."""

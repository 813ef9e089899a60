"""What operators see of a running server: figures, the view of everything, metrics and traces."""

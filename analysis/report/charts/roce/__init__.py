"""Charts of what queue pairs do."""

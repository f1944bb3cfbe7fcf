"""The predictors, one a file."""

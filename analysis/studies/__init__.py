"""Many cases of one experiment: which factor matters how much, and which case is best."""

"""Files of specs: begun and checked."""

"""ASTRA-sim's own files: read, checked and written."""

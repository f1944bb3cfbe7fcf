"""The jobs of a spec: their section, and what is checked of them."""

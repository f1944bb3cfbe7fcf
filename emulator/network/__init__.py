"""A fabric in the kernel at hand: up, impaired, and down."""

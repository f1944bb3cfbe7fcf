"""Measurements that print ratios; none of them is a test."""

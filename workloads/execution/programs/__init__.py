"""Programs of collectives, executed with real tensors over Gloo's point-to-point messages."""

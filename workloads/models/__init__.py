"""What ranks compute and send, as pure data: models, their steps, replayed programs. No torch."""

"""The computing and sending of ranks, as pure data: models, their steps, replayed programs. No
torch."""

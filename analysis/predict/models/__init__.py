"""The predictors, one a file.

What they share is in `analysis/predict/engines`. Three names to know: `Packet`, `Flow` and
`AlphaBeta`.
"""

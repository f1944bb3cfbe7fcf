"""The predictors, one a file.

Their common parts are in `analysis/predict/engines`. Three names to know: `Packet`, `Flow` and
`AlphaBeta`.
"""

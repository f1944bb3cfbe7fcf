"""The parts of predictors: paths, shares of links, messages as a fluid, costs of messages.

None of them is a predictor by itself: `analysis/predict/models` has these. Three names to know:
`Paths`, `JointPrograms` and `run_fluid`.
"""

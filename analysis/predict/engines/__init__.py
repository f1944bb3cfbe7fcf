"""The parts of predictors: paths, shares of links, trains of packets, costs of messages.

None of them is a predictor by itself: `analysis/predict/models` has these. Three names to know:
`Paths`, `PacketTrains` and `JointPrograms`.
"""

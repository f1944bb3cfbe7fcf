"""The parts of predictors: paths, shares of links, trains of packets, costs of messages."""

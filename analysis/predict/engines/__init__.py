"""What predictors are made of: paths, shares of links, trains of packets, costs of messages."""

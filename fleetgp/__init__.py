"""FleetGP: streams watched at the edge, learnt by a federated hierarchical Gaussian process."""

__version__ = "0.1.0"

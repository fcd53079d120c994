"""Holdfast: a federated store-and-forward message bus for sites joined by slow or unreliable links."""

__version__ = "0.1.0"

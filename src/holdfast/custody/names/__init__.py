"""Identities of messages and of stores, and the names of nodes behind them."""

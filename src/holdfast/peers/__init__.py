"""Connections and who is behind them: what each peer, user and address may have, and the memory that they share."""

"""Connections and their users: what each peer, user and address may use, and the memory that they share."""

"""Where entries live: the contract of a store and its implementations."""

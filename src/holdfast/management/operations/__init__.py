"""The operations of `$management`: on queues, subscriptions and the node."""

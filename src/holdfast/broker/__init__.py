"""The data plane: addresses, queues, delivery, subscriptions and custody between nodes. No sockets, no clock."""

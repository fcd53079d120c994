"""What a client's link can be: producers, consumers, browsers, subscriptions, dynamic nodes, resumed links."""

"""The kinds of a client's link: producers, consumers, browsers, subscriptions, dynamic nodes, resumed links,
coordinators."""

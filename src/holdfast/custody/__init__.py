"""Each message once, in order, over any number of hops: identities, forwarding, the destination, how messages end."""

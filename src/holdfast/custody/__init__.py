"""Each message once, in order, over any number of hops: identities, the way, the destination, how messages end."""

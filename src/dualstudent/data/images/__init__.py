"""Own images: listing, decoding and checking."""

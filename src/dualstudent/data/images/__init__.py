"""Own images: listing, decoding, checking."""

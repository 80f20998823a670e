"""Data sets ready to publish, with card and checksums, and what differs between two of them."""

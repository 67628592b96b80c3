"""KV-cache transfers: layout, self-describing blocks, publication, fencing, recovery, transports, and two paths with a scheduler."""

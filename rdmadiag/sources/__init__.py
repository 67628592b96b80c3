"""Evidence sources: one file a kind of evidence; reading a node and parsing a text are two functions."""

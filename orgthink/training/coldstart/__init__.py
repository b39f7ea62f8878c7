"""Cold start: supervised data for the protocol of an organization."""

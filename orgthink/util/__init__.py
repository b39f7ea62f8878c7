"""Files, HTTP, secrets, settings and the terminal: what every other room stands on."""

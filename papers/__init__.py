"""Claims about the three papers, the outcomes that decide them, and a command that recomputes every figure."""

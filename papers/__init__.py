"""What was tested about the three papers: claims, the outcomes that decide them, and one command that recomputes all figures."""

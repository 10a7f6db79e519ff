"""One script for each figure in the documentation."""

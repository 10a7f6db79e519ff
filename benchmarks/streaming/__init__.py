"""What ``transduce translate`` takes as a program: seconds until it is ready, and memory over a long input."""

"""What our decoding is measured against, each in a process of its own."""

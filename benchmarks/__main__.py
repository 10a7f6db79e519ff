"""Run every benchmark: ``make bench``."""

from benchmarks import training_step

if __name__ == "__main__":
    training_step.main()

"""Run every benchmark: ``make bench``."""

from benchmarks import figures, initialisation, training_step, why_scale

if __name__ == "__main__":
    training_step.main()
    figures.main()
    why_scale.main()
    initialisation.main()

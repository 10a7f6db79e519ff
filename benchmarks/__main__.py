"""Run the benchmarks that take a few minutes at most: ``make bench``. The others' docstrings say how to run them."""

from benchmarks import figures, format_speed, initialisation, parameter_attention, training_step, why_scale

if __name__ == "__main__":
    training_step.main()
    parameter_attention.main()
    figures.main()
    why_scale.main()
    initialisation.main()
    format_speed.main()  # last: it ends with a status of its own

"""The lines of a training that never was."""


def train(step, **more):
    """A line of training: 100 target tokens and half a second a step."""
    line = {"step": step, "split": "train", "loss": 4.0, "learning_rate": 0.5, "target_tokens": 100 * step}
    return {**line, "seconds": 0.5 * step, "gradient_norm": 0.25, "skipped": 0, **more}


def dev(step, bleu, outputs=(), **more):
    """A line of dev, with what was written for sentences 1, 2, ..."""
    samples = [
        {"source": f"s{number}", "reference": f"r{number}", "output": output}
        for number, output in enumerate(outputs, start=1)
    ]
    line = {"step": step, "split": "dev", "loss": 3.0, "learning_rate": 0.5, "target_tokens": 100 * step}
    return {**line, "seconds": 0.5 * step, "bleu": bleu, "samples": samples, **more}

"""``python -m transduce``: the command line, where a launcher such as torchrun starts modules and not scripts."""

from transduce.cli.main import run

if __name__ == "__main__":
    run()

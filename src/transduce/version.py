"""The version of this package, where rooms read it that may not know all that ``transduce`` exports."""

__version__ = "0.1.0"

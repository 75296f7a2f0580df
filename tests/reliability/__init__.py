"""The short form of every check, and tests of the checks themselves."""

"""Attacks on the verifier, honest repairs beside them, and what a judge says of each, as a matrix.

`rows/` holds the attacks as data, `targets/` the packages that they are tried on; `corpus` reads both and makes the
trees, `judges` decides, `matrix` puts every case before a judge on every package.
"""

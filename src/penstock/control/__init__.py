"""Steering a running topology: what can be read of it and asked of it, by a program, over HTTP, from a command line."""

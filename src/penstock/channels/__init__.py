"""Channels: the durable, replayable logs between operators.

Rows of a channel are numbered from 0, and an offset is a row number. The rows are in immutable Arrow files
(`segments`), split by key where a stream asks for it (`keys`); which files there are and who has read how far is in a
database (`catalog`), kept in memory by the driver (`log`). Spark's tasks import `segments` and `keys` only: that is why
nothing is imported here, so that no executor pays for loading a database library.
"""

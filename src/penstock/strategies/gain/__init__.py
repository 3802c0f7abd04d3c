"""`gain`: every new instance goes where it adds most to the throughput of the sinks. See docs/design/0025."""

"""Bundles that stand: a Spark task stays for a turn, and takes the shares of batch after batch from the driver."""

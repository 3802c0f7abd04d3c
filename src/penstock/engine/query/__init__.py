"""One query: what it reads and writes, when its next micro-batch starts and how much that reads. Runs in the driver."""

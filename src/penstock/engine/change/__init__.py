"""How a running topology is changed. Runs in the driver."""

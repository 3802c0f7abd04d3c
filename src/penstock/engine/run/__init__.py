"""The life of a topology, from opening its state to its end. Runs in the driver."""

"""What the driver and an executor tell each other: values only."""

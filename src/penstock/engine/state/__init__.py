"""What a topology has left on disk, whose it is, and whether it fits what is declared now. Runs in the driver."""

"""What Stela is measured against: Storm's default and the topology-aware moves of existing instances."""

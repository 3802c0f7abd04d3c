"""What users and their programs speak to: the handle, operations, HTTP, its client, discovery."""

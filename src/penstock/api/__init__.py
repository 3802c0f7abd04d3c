"""What users and their programs speak to: the handle, steering, HTTP, its client, discovery."""

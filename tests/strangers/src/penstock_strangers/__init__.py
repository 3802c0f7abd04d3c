"""What strangers bring to Penstock, one file each."""

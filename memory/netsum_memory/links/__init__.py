"""How packets reach a device: the kernel's UDP, or whole frames."""

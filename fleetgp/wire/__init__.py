"""Bytes to frozen structs and back, and the topics they travel on."""

"""The coordinator: closes rounds and gives the fleet's knowledge back."""

"""What only a proxy can do: the mitmproxy side of the project."""

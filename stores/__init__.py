"""The places where clients keep their sessions, and the repair of what leaked into them."""

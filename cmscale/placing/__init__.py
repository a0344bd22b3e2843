"""Where do waiting jobs go? The ways there are, what pools offer, the room that is left, and whether to wait."""

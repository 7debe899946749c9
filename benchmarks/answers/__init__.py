"""How good the small model's answers are, and how soon they come."""

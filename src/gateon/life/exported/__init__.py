"""What an export is made of. These files import nothing of gateon: a copy of them runs alone."""

"""What an option is: its name, kind, range and default, read off the code it configures.

Imports nothing of gateon and no torch, so that every room may declare options with it.
"""

"""What each table of a run holds: its file, its columns, and what they mean."""

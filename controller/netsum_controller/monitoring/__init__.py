"""What looks at switches and jobs while they run, and acts on or reports what it sees."""

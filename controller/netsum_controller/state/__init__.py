"""What the controller remembers: jobs and epochs, in a file that one command at a time may change."""

"""The console under load: its viewers, in a process of their own."""

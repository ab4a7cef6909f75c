"""Tables: pure functions from records to frames, and from frames to Markdown, CSV and HTML."""

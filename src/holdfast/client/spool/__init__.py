"""Named producers: messages kept in a file, and their numbers over crashes."""

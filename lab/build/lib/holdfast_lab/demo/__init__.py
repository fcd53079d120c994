"""`holdfast demo`: real flights through sixteen nodes while links fail, their numbers and the picture."""

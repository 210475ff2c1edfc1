"""`import keel`: the functions, what they accept, and what they return."""

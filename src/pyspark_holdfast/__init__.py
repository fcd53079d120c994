"""The Spark side: a streaming source over a named subscription, and the jobs that use it."""

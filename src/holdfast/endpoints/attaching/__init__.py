"""Answers to attaches of clients and neighbours, link by link."""

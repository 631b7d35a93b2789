"""A browser for the page of a recorded life."""

from support.browsers import browser, page

__all__ = ["browser", "page"]

"""The fixtures of the page's tests."""

from support.browsers import browser, page

__all__ = ["browser", "page"]

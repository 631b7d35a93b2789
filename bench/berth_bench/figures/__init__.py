"""The figures of `docs/performance.md`: which command gives each, and the page's tables."""

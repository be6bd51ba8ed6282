"""The paper's census demonstration on public data: a release, its figures and a page."""

"""How the documentation site is built: drawings from code, and the list of its pages."""

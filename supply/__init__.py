"""What the package is built from: locked requirements and their licences."""

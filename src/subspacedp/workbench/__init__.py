"""A page on this machine to design a release on, and to carry it out.

The server is small and holds no data: what is computed is computed by the functions behind `plan`,
`audit`, `release` and `init`, in processes of their own.
"""

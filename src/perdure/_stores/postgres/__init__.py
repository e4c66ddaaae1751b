"""A store in a PostgreSQL database, which several machines may share.

`store` is its class, `operations` works on the pool, `schema` has the tables.
"""

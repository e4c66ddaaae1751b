"""x"""
import pytest
from windlass.stores.postgres import PostgresStore
from windlass.testing.contracts import check_store

pytestmark = pytest.mark.needs("postgres", "pgbouncer")
async def test_it_keeps_the_contract(postgres):
    await check_store(lambda: PostgresStore(postgres.address()))
async def test_it_keeps_the_contract2(pooled_address):
    await check_store(lambda: PostgresStore(pooled_address))

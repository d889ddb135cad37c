"""An application with faststream-outbox: it writes rows, and relays them to Kafka as
the library's first example does. Test data for the parity test.
Usage: shop.py write|relay POSTGRES KAFKA TOPIC
"""

import asyncio
import sys
from typing import Any

from faststream import FastStream
from faststream.kafka import KafkaBroker
from faststream_outbox import OutboxBroker, make_outbox_table
from sqlalchemy import MetaData
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine

job, database, brokers, topic = sys.argv[1:]
engine = create_async_engine(database.replace("postgres://", "postgresql+asyncpg://"), connect_args={"server_settings": {"search_path": "public"}})
metadata = MetaData()
outbox = OutboxBroker(engine, outbox_table=make_outbox_table(metadata, table_name="outbox"))
kafka = KafkaBroker(brokers)
publisher = kafka.publisher(topic)


@publisher
@outbox.subscriber(topic, propagate_inbound_headers=True)
async def relay(body: Any) -> Any:
    return body


BODIES = [{"b": 1.50, "a": [1, 2]}, "", "Überweisung für Zürich", {"ü": "\u2028 😀 \t\"</"}, b"\x00\xff", b"", [1, None, True], "x" * 100_000]
HEADERS = [None, {"source": "shop"}, {"Zürich": "größe <>&", "empty": ""}]


async def write() -> None:
    async with engine.begin() as connection:
        await connection.run_sync(metadata.create_all)
    await outbox.connect()
    sessions = async_sessionmaker(engine, expire_on_commit=False)
    for i in range(24):
        async with sessions() as session, session.begin():
            await outbox.publish(BODIES[i % len(BODIES)], queue=topic, session=session, headers=HEADERS[i % 3])


if job == "write":
    asyncio.run(write())
else:
    asyncio.run(FastStream(outbox, on_startup=[kafka.connect]).run())

"""Reads a topic by one of Python's libraries: BROKERS TOPIC default|committed LIBRARY."""
import asyncio
import sys
import time

brokers, topic, mode, library = sys.argv[1:]
group = f"{library}-{topic}-{mode}"
QUIET = 3


def show(key, value, headers):
    """What want.txt has of a record."""
    header = dict(headers or []).get("header")
    return ":".join(text(part) for part in ((key, value, header) if topic == "nulls" else (value,)))


def text(part):
    return "null" if part is None else part.decode()


def confluent():
    from confluent_kafka import Consumer
    conf = {"bootstrap.servers": brokers, "group.id": group, "auto.offset.reset": "earliest"}
    if mode == "committed":
        conf["isolation.level"] = "read_committed"
    consumer, values, last = Consumer(conf), [], time.monotonic()
    consumer.subscribe([topic])
    while time.monotonic() - last < (QUIET if values else 30):
        message = consumer.poll(0.2)
        if message is not None and not message.error():
            values.append(show(message.key(), message.value(), message.headers()))
            last = time.monotonic()
    consumer.close()
    return values


def kafka_python():
    from kafka import KafkaConsumer
    conf = {"isolation_level": "read_committed"} if mode == "committed" else {}
    consumer, values, last = KafkaConsumer(topic, bootstrap_servers=brokers, group_id=group, auto_offset_reset="earliest", **conf), [], time.monotonic()
    while time.monotonic() - last < (QUIET if values else 30):
        for messages in consumer.poll(200).values():
            values += [show(m.key, m.value, m.headers) for m in messages]
            last = time.monotonic()
    consumer.close()
    return values


async def aio():
    from aiokafka import AIOKafkaConsumer
    conf = {"isolation_level": "read_committed"} if mode == "committed" else {}
    consumer, values, last = AIOKafkaConsumer(topic, bootstrap_servers=brokers, group_id=group, auto_offset_reset="earliest", **conf), [], time.monotonic()
    await consumer.start()
    while time.monotonic() - last < (QUIET if values else 30):
        for messages in (await consumer.getmany(timeout_ms=200)).values():
            values += [show(m.key, m.value, m.headers) for m in messages]
            last = time.monotonic()
    await consumer.stop()
    return values


read = {"confluent-kafka": confluent, "kafka-python": kafka_python, "aiokafka": lambda: asyncio.run(aio())}[library]
print(*read())

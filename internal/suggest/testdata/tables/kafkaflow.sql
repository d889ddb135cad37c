-- from: AlexeyRaga/kafkaflow-contrib Contrib.KafkaFlow.Outbox.Postgres/schema
-- want: id=sequence_id topic=topic_name key=message_key payload=message_body published=delete created=date_added_utc
CREATE TABLE outbox (
    sequence_id BIGSERIAL PRIMARY KEY,
    topic_name VARCHAR(255) NOT NULL,
    partition INT,
    message_key BYTEA,
    message_headers TEXT,
    message_body BYTEA,
    date_added_utc TIMESTAMP DEFAULT (now() AT TIME ZONE 'utc'));

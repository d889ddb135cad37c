-- from: made up after hand-written tables of public code: an own column for the key, a second unique id, tries of publishing
-- want: topic=? key=kafka_key sent_at=published_at attempts=publish_attempts created=occurred_at
CREATE TABLE rating_outbox (
    id bigserial PRIMARY KEY,
    event_id uuid NOT NULL UNIQUE,
    aggregate_type varchar(40) NOT NULL DEFAULT 'rating',
    aggregate_id bigint NOT NULL,
    kafka_key varchar(30) NOT NULL,
    event_type varchar(40) NOT NULL,
    payload jsonb NOT NULL,
    occurred_at timestamptz NOT NULL DEFAULT now(),
    published_at timestamptz,
    publish_attempts int NOT NULL DEFAULT 0);
CREATE INDEX ON rating_outbox (id) WHERE published_at IS NULL;

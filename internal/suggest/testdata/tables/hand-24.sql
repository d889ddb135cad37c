-- from: stored public code, index: "changeset srBob01:008-create-outbox-table"
-- want: topic=topic key=? sent_at=processed_at created=created_at
CREATE TABLE outbox (
    id BIGSERIAL PRIMARY KEY,
    topic VARCHAR(255) NOT NULL,
    payload TEXT NOT NULL,
    created_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
    processed_at TIMESTAMP);
CREATE INDEX ON outbox (processed_at);

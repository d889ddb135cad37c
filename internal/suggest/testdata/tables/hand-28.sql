-- from: stored public code, index: "CREATE TABLE IF NOT EXISTS message_outbox (id uuid, topic text, key text, payload bytea)"
-- want: topic=topic key=key published=?none
CREATE TABLE message_outbox (
    id uuid PRIMARY KEY,
    topic text,
    key text,
    payload bytea);

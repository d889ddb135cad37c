-- from: ali-aidaruly/outbox migrations/postgres/0002_create_outbox_table.sql
-- want: topic=? key=? sent_at=published_at created=created_at
CREATE TABLE outbox (
    id UUID PRIMARY KEY,
    type TEXT NOT NULL,
    payload JSONB NOT NULL,
    created_at TIMESTAMP NOT NULL DEFAULT now(),
    published_at TIMESTAMP,
    lease_until TIMESTAMP);

-- from: a hand-written table whose payload is a large object (Hibernate's @Lob)
-- want: refused
CREATE TABLE outbox (
    id bigserial PRIMARY KEY,
    event_type text NOT NULL,
    payload oid NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    published_at timestamptz);

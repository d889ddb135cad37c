-- from: stored public code, index: "CREATE TABLE outbox (id serial primary key, topic text, key text, value bytea"
-- want: topic=topic key=key payload=value published=?none created=created_at
CREATE TABLE outbox (
    id serial primary key,
    topic text not null,
    key text not null,
    value bytea not null,
    created_at timestamptz not null default now());

-- from: fyrkov/r2dbc-coroutines-demo src/main/resources/db/migration/V1__init.sql (partitioned by published_at, without a unique index)
-- want: refused
CREATE TABLE outbox (
    id bigint generated always as identity not null,
    aggregate_type varchar(255) not null,
    aggregate_id varchar(255) not null,
    payload jsonb not null,
    created_at timestamptz not null default now(),
    published_at timestamptz) partition by list (published_at);

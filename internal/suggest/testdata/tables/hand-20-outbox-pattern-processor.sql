-- from: deroldo/outbox-pattern-processor database/migrations/1_outbox_pattern_table.sql
-- want: id=idempotent_key topic=? key=partition_key sent_at=processed_at attempts=attempts created=created_at
CREATE TABLE outbox (
    idempotent_key uuid not null,
    partition_key uuid not null,
    destinations jsonb not null,
    headers jsonb,
    payload text not null,
    attempts int not null default 0,
    created_at timestamptz not null default now(),
    processing_until timestamptz not null default now(),
    processed_at timestamptz,
    primary key (idempotent_key));

-- from: italolelis/outboxer storage/postgres/postgres.go
-- want: topic=options key=id column=dispatched pending=false sent=true sent_at=dispatched_at
CREATE TABLE event_store (
    id SERIAL PRIMARY KEY,
    dispatched boolean NOT NULL DEFAULT false,
    dispatched_at timestamp,
    payload bytea NOT NULL,
    options jsonb,
    headers jsonb);

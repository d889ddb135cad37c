-- from: made up after hand-written tables of public code: epochs in milliseconds throughout: the time of the send cannot be written
-- want: id=event_id topic=? key=aggregate_id column=status pending=NEW sent=DONE due=? attempts=retry_count order=created_at
CREATE TABLE ledger_outbox (
    event_id text PRIMARY KEY,
    aggregate_id text NOT NULL,
    event_type text NOT NULL,
    payload text NOT NULL,
    status text NOT NULL DEFAULT 'NEW' CHECK (status IN ('NEW', 'DONE')),
    retry_count integer NOT NULL DEFAULT 0,
    next_retry_at bigint,
    created_at bigint NOT NULL,
    processed_at bigint);

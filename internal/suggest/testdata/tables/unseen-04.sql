-- from: made up after hand-written tables of public code: an enum without a default: one label is left over
-- want: topic=? key=? column=outbox_status pending=STARTED sent=COMPLETED failed=FAILED sent_at=processed_at created=created_at
CREATE TYPE saga_outbox_status AS ENUM ('STARTED', 'COMPLETED', 'FAILED');
CREATE TABLE plan_outbox (
    id uuid NOT NULL PRIMARY KEY,
    created_at timestamptz NOT NULL,
    processed_at timestamptz,
    payload jsonb NOT NULL,
    outbox_status saga_outbox_status NOT NULL,
    version integer NOT NULL);

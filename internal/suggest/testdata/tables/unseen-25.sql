-- from: made up after hand-written tables of public code: a status of five words, one of them tried again
-- want: topic=? key=? column=status pending=pending,? processing=processing sent=processed failed=dead_letter attempts=attempts created=created_at error=last_error
CREATE TYPE crm_outbox_status AS ENUM ('pending', 'processing', 'processed', 'retryable', 'dead_letter');
CREATE TABLE crm_outbox (
    id uuid PRIMARY KEY,
    payload jsonb NOT NULL,
    status crm_outbox_status NOT NULL DEFAULT 'pending',
    attempts integer NOT NULL DEFAULT 0,
    last_error text,
    created_at timestamptz NOT NULL DEFAULT now());

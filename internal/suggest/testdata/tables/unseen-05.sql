-- from: made up after hand-written tables of public code: an enum: the label for sent is no known word
-- want: topic=? key=partition_key column=status pending=pending sent=?applied processing=processing failed=failed created=created_at error=error_message
CREATE TYPE sync_status AS ENUM ('pending', 'processing', 'applied', 'failed');
CREATE TABLE sync_outbox (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    partition_key text NOT NULL,
    order_ref text,
    payload jsonb NOT NULL,
    status sync_status NOT NULL DEFAULT 'pending',
    error_message text,
    created_at timestamptz NOT NULL DEFAULT now());

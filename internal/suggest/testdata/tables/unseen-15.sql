-- from: made up after hand-written tables of public code: data and metadata of an event; words of a constraint; Portuguese code
-- want: topic=? key=aggregate_id payload=event_data column=status pending=PENDING sent=PROCESSED failed=FAILED sent_at=processed_at created=created_at
CREATE TABLE eventos_outbox (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    aggregate_id uuid NOT NULL,
    aggregate_type varchar(255) NOT NULL,
    event_type varchar(255) NOT NULL,
    event_data jsonb NOT NULL,
    event_metadata jsonb,
    created_at timestamptz NOT NULL DEFAULT CURRENT_TIMESTAMP,
    processed_at timestamptz,
    status varchar(50) NOT NULL DEFAULT 'PENDING' CHECK (status IN ('PENDING', 'PROCESSED', 'FAILED')));

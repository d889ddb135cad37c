-- from: made up after hand-written tables of public code: a topic, a state that only its default tells, unique by aggregate and topic
-- want: topic=topic key=aggregate_id column=state pending=pending sent=?processed sent_at=processed_at attempts=attempts due=available_at error=last_error created=created_at
CREATE TABLE payment_outbox (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    aggregate_type varchar(60) NOT NULL,
    aggregate_id uuid NOT NULL,
    topic varchar(100) NOT NULL,
    payload jsonb NOT NULL,
    state varchar(20) NOT NULL DEFAULT 'pending',
    attempts integer NOT NULL DEFAULT 0,
    available_at timestamptz NOT NULL DEFAULT now(),
    processed_at timestamptz,
    last_error text,
    created_at timestamptz NOT NULL DEFAULT now(),
    UNIQUE (aggregate_id, topic));

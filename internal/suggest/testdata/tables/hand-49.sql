-- from: stored public code, index: Drizzle pgTable outbox_events (serial id, status varchar default pending, retry_count)
-- want: topic=? key=? column=status pending=pending sent=?processed sent_at=processed_at attempts=retry_count created=created_at
CREATE TABLE outbox_events (
    id serial PRIMARY KEY,
    event_type varchar(255) NOT NULL,
    payload jsonb NOT NULL,
    created_at timestamp DEFAULT now() NOT NULL,
    processed_at timestamp,
    status varchar(50) DEFAULT 'pending' NOT NULL,
    retry_count integer DEFAULT 0 NOT NULL);

-- from: stored public code, index: FluentMigrator outbox_messages (created_on_utc, processed_on_utc, error_message)
-- want: topic=? key=? sent_at=processed_on_utc error=error_message created=created_on_utc
CREATE TABLE outbox_messages (
    id uuid PRIMARY KEY,
    type varchar(200) NOT NULL,
    payload jsonb NOT NULL,
    created_on_utc timestamptz NOT NULL DEFAULT now(),
    processed_on_utc timestamptz,
    error_message text);

-- from: mtamme/ddd-sample-springboot src/main/resources/db/migration/V0_2__outbox.sql
-- want: id=message_id topic=? key=? published=?none due=- created=enqueued_at
CREATE TABLE outbox_message (
    message_id TEXT NOT NULL,
    type TEXT NOT NULL,
    correlation_id TEXT NOT NULL,
    enqueued_at TIMESTAMP NOT NULL,
    scheduled_at TIMESTAMP NOT NULL,
    requeue_count INTEGER NOT NULL,
    payload BYTEA NOT NULL,
    PRIMARY KEY (message_id));

-- from: RubenScheedler/outbox-example Scripts/init.sql
-- want: topic=? key=? payload=content sent_at=processed_at error=error created=created_at
CREATE TABLE outbox_messages (
    id UUID PRIMARY KEY,
    message_type TEXT NOT NULL,
    content JSONB NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    processed_at TIMESTAMP WITH TIME ZONE NULL,
    error TEXT NULL);

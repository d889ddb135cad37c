-- from: D1sordxr/simple-bank bank-commands/internal/infrastructure/postgres/migrations/outbox.sql
-- want: topic=? key=aggregate_id payload=message_payload column=status pending=Pending sent=Processed created=created_at
CREATE TABLE outbox (
    id UUID PRIMARY KEY,
    aggregate_id UUID NOT NULL,
    aggregate_type VARCHAR(50) NOT NULL,
    message_type VARCHAR(50) NOT NULL,
    message_payload TEXT NOT NULL,
    status VARCHAR(50) NOT NULL,
    created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP);
INSERT INTO outbox (id, aggregate_id, aggregate_type, message_type, message_payload, status) VALUES
    (gen_random_uuid(), gen_random_uuid(), 'account', 'opened', '{}', 'Pending'),
    (gen_random_uuid(), gen_random_uuid(), 'account', 'opened', '{}', 'Processed');

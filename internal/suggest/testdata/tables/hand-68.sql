-- from: stored public code, index: message_outbox (message_payload, message_status 'PENDING', 'PUBLISHED')
-- want: topic=? key=? payload=message_payload column=message_status pending=PENDING sent=PUBLISHED created=created_at
CREATE TYPE outbox_message_status AS ENUM ('PENDING', 'PUBLISHED');
CREATE TABLE message_outbox (
    id BIGSERIAL PRIMARY KEY,
    message_type TEXT NOT NULL,
    message_payload JSONB NOT NULL,
    message_status outbox_message_status NOT NULL,
    created_at TIMESTAMP NOT NULL DEFAULT NOW(),
    updated_at TIMESTAMP NOT NULL DEFAULT NOW());

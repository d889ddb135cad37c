-- from: stored public code, index: "000010_add_outbox_table.up.sql" (sent boolean, sent_at)
-- want: topic=topic key=? column=sent pending=false,null sent=true sent_at=sent_at created=created_at
CREATE TABLE outbox_messages (
    id UUID PRIMARY KEY,
    topic TEXT NOT NULL,
    payload BYTEA NOT NULL,
    created_at TIMESTAMPTZ DEFAULT NOW(),
    sent BOOLEAN DEFAULT FALSE,
    sent_at TIMESTAMPTZ);

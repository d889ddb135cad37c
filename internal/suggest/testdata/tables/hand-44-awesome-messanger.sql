-- from: popeskul/awesome-messanger services/friend/migrations/000001_create_outbox_table.up.sql
-- want: topic=? key=? column=status pending=pending sent=?processed sent_at=processed_at created=created_at
CREATE TABLE outbox (
    id SERIAL PRIMARY KEY,
    event_type VARCHAR(50) NOT NULL,
    payload JSONB NOT NULL,
    status VARCHAR(20) DEFAULT 'pending' NOT NULL,
    created_at TIMESTAMPTZ DEFAULT NOW(),
    processed_at TIMESTAMPTZ);

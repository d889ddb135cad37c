-- from: NLipatov/goproxy src/dal/migrations/v3_outbox_table.sql
-- want: topic=? key=? column=published pending=false,null sent=true created=created_at
CREATE TABLE outbox (
    id SERIAL PRIMARY KEY,
    event_type VARCHAR(255) NOT NULL,
    payload JSONB NOT NULL,
    published BOOLEAN DEFAULT FALSE,
    created_at TIMESTAMP DEFAULT now());

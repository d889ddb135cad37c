-- from: tumbleweedd/order_service migrations/2_init_outbox.up.sql
-- want: topic=? key=? column=processed pending=false,null sent=true created=created_at
CREATE TABLE outbox (
    id SERIAL PRIMARY KEY,
    event_type VARCHAR(50) NOT NULL,
    payload JSONB NOT NULL,
    processed BOOLEAN DEFAULT FALSE,
    created_at timestamp default now());
